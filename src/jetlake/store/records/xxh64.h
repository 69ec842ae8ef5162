/* XXH64, the 64-bit xxHash, for the kernels. Written from its specification; tests compare it with the xxhash package.
   Reads are unaligned and little-endian, as the block format is. */
#ifndef JETLAKE_XXH64_H
#define JETLAKE_XXH64_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define JL_P1 0x9E3779B185EBCA87ULL
#define JL_P2 0xC2B2AE3D27D4EB4FULL
#define JL_P3 0x165667B19E3779F9ULL
#define JL_P4 0x85EBCA77C2B2AE63ULL
#define JL_P5 0x27D4EB2F165667C5ULL

static inline uint64_t jl_load64(const unsigned char *p) {
    uint64_t v;
    memcpy(&v, p, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static inline uint32_t jl_load32(const unsigned char *p) {
    uint32_t v;
    memcpy(&v, p, 4);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    return v;
}

static inline void jl_store64(unsigned char *p, uint64_t v) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    memcpy(p, &v, 8);
}

static inline uint64_t jl_rotl(uint64_t v, int n) { return (v << n) | (v >> (64 - n)); }

static inline uint64_t jl_round(uint64_t acc, uint64_t lane) {
    acc += lane * JL_P2;
#if defined(__GNUC__)
    __asm__("" : "+r"(acc)); /* spares a move for every round: the sum goes where the lane was */
#endif
    return jl_rotl(acc, 31) * JL_P1;
}

static inline uint64_t jl_merge(uint64_t acc, uint64_t lane) {
    return (acc ^ jl_round(0, lane)) * JL_P1 + JL_P4;
}

static inline uint64_t jl_byte(uint64_t acc, unsigned char byte) { return jl_rotl(acc ^ byte * JL_P5, 11) * JL_P1; }

/* A hash on its way: its lanes after all whole stripes. */
typedef struct {
    uint64_t a, b, c, d;
} jl_lanes;

static inline void jl_stripe(jl_lanes *lanes, const unsigned char *p) {
    lanes->a = jl_round(lanes->a, jl_load64(p));
    lanes->b = jl_round(lanes->b, jl_load64(p + 8));
    lanes->c = jl_round(lanes->c, jl_load64(p + 16));
    lanes->d = jl_round(lanes->d, jl_load64(p + 24));
}

static inline jl_lanes jl_hash_begin(const unsigned char *p, size_t size, uint64_t seed) {
    jl_lanes lanes = {seed + JL_P1 + JL_P2, seed + JL_P2, seed, seed - JL_P1};
    for (; size >= 128; p += 128, size -= 128) { /* a quarter fewer instructions than one stripe at a time */
        jl_stripe(&lanes, p);
        jl_stripe(&lanes, p + 32);
        jl_stripe(&lanes, p + 64);
        jl_stripe(&lanes, p + 96);
    }
    for (; size >= 32; p += 32, size -= 32) jl_stripe(&lanes, p);
    return lanes;
}

/* The hash of the `size` bytes before `end`. */
static inline uint64_t jl_hash_end(const jl_lanes *lanes, const unsigned char *end, size_t size, uint64_t seed) {
    const unsigned char *p = end - (size & 31);
    uint64_t acc = seed + JL_P5;
    if (size >= 32) {
        acc = jl_rotl(lanes->a, 1) + jl_rotl(lanes->b, 7) + jl_rotl(lanes->c, 12) + jl_rotl(lanes->d, 18);
        acc = jl_merge(acc, lanes->a);
        acc = jl_merge(acc, lanes->b);
        acc = jl_merge(acc, lanes->c);
        acc = jl_merge(acc, lanes->d);
    }
    acc += size;
    for (; end - p >= 8; p += 8) acc = jl_rotl(acc ^ jl_round(0, jl_load64(p)), 27) * JL_P1 + JL_P4;
    if (end - p >= 4) {
        acc = jl_rotl(acc ^ (uint64_t)jl_load32(p) * JL_P1, 23) * JL_P2 + JL_P3;
        p += 4;
    }
    if (size & 2) {
        acc = jl_byte(jl_byte(acc, p[0]), p[1]);
        p += 2;
    }
    if (size & 1) acc = jl_byte(acc, *p);
    acc = (acc ^ (acc >> 33)) * JL_P2;
    acc = (acc ^ (acc >> 29)) * JL_P3;
    return acc ^ (acc >> 32);
}

static inline uint64_t jl_xxh64(const unsigned char *p, size_t size, uint64_t seed) {
    jl_lanes lanes = jl_hash_begin(p, size, seed);
    return jl_hash_end(&lanes, p + size, size, seed);
}

#endif
