/* HighwayHash-64, which nats-server seals its records with. See nats/format.py for what is hashed. */
#ifndef JL_HIGHWAYHASH_H
#define JL_HIGHWAYHASH_H

#include <stdint.h>
#include <string.h>

typedef struct {
    uint64_t v0[4], v1[4], mul0[4], mul1[4];
    uint8_t rest[32];
    uint32_t rest_size;
} jl_hh;

static inline uint64_t jl_hh_load(const uint8_t *data) {
    uint64_t value;
    memcpy(&value, data, 8);
    return value;
}

static inline uint64_t jl_hh_swap(uint64_t x) { return x >> 32 | x << 32; }

static inline void jl_hh_start(jl_hh *s, const uint8_t *key) {
    static const uint64_t mul0[4] = {0xdbe6d5d5fe4cce2fULL, 0xa4093822299f31d0ULL, 0x13198a2e03707344ULL,
                                     0x243f6a8885a308d3ULL};
    static const uint64_t mul1[4] = {0x3bd39e10cb0ef593ULL, 0xc0acf169b5f18a8cULL, 0xbe5466cf34e90c6cULL,
                                     0x452821e638d01377ULL};
    for (int i = 0; i < 4; i++) {
        uint64_t k = jl_hh_load(key + 8 * i);
        s->mul0[i] = mul0[i];
        s->mul1[i] = mul1[i];
        s->v0[i] = mul0[i] ^ k;
        s->v1[i] = mul1[i] ^ jl_hh_swap(k);
    }
    s->rest_size = 0;
}

static inline void jl_hh_zip(uint64_t high, uint64_t low, uint64_t *out_high, uint64_t *out_low) {
    *out_low += (((low & 0xff000000ULL) | (high & 0xff00000000ULL)) >> 24) |
                (((low & 0xff0000000000ULL) | (high & 0xff000000000000ULL)) >> 16) | (low & 0xff0000ULL) |
                ((low & 0xff00ULL) << 32) | ((high & 0xff00000000000000ULL) >> 8) | (low << 56);
    *out_high += (((high & 0xff000000ULL) | (low & 0xff00000000ULL)) >> 24) | (high & 0xff0000ULL) |
                 ((high & 0xff0000000000ULL) >> 16) | ((high & 0xff00ULL) << 24) |
                 ((low & 0xff000000000000ULL) >> 8) | ((high & 0xffULL) << 48) | (low & 0xff00000000000000ULL);
}

static inline void jl_hh_update(jl_hh *s, const uint64_t *lanes) {
    for (int i = 0; i < 4; i++) {
        s->v1[i] += s->mul0[i] + lanes[i];
        s->mul0[i] ^= (s->v1[i] & 0xffffffffULL) * (s->v0[i] >> 32);
        s->v0[i] += s->mul1[i];
        s->mul1[i] ^= (s->v0[i] & 0xffffffffULL) * (s->v1[i] >> 32);
    }
    jl_hh_zip(s->v1[1], s->v1[0], &s->v0[1], &s->v0[0]);
    jl_hh_zip(s->v1[3], s->v1[2], &s->v0[3], &s->v0[2]);
    jl_hh_zip(s->v0[1], s->v0[0], &s->v1[1], &s->v1[0]);
    jl_hh_zip(s->v0[3], s->v0[2], &s->v1[3], &s->v1[2]);
}

static inline void jl_hh_packet(jl_hh *s, const uint8_t *data) {
    uint64_t lanes[4];
    memcpy(lanes, data, 32);
    jl_hh_update(s, lanes);
}

static inline void jl_hh_add(jl_hh *s, const uint8_t *data, uint64_t size) {
    if (s->rest_size) {
        uint32_t part = 32 - s->rest_size;
        if (part > size) part = (uint32_t)size;
        memcpy(s->rest + s->rest_size, data, part);
        s->rest_size += part;
        data += part;
        size -= part;
        if (s->rest_size < 32) return;
        jl_hh_packet(s, s->rest);
        s->rest_size = 0;
    }
    for (; size >= 32; size -= 32, data += 32) jl_hh_packet(s, data);
    memcpy(s->rest, data, size);
    s->rest_size = (uint32_t)size;
}

static inline uint32_t jl_hh_rotate(uint32_t x, uint32_t by) { return x << by | x >> (32 - by); }

static inline uint64_t jl_hh_end(jl_hh *s) {
    uint32_t size = s->rest_size;
    if (size) {
        uint8_t packet[32] = {0};
        uint32_t few = size & 3, whole = size - few;
        for (int i = 0; i < 4; i++) {
            s->v0[i] += ((uint64_t)size << 32) + size;
            s->v1[i] = (uint64_t)jl_hh_rotate((uint32_t)(s->v1[i] >> 32), size) << 32 |
                       jl_hh_rotate((uint32_t)s->v1[i], size);
        }
        memcpy(packet, s->rest, whole);
        if (size >= 16) {
            memcpy(packet + 28, s->rest + size - 4, 4);
        } else if (few) {
            packet[16] = s->rest[whole];
            packet[17] = s->rest[whole + (few >> 1)];
            packet[18] = s->rest[size - 1];
        }
        jl_hh_packet(s, packet);
    }
    for (int i = 0; i < 4; i++) {
        uint64_t lanes[4] = {jl_hh_swap(s->v0[2]), jl_hh_swap(s->v0[3]), jl_hh_swap(s->v0[0]), jl_hh_swap(s->v0[1])};
        jl_hh_update(s, lanes);
    }
    return s->v0[0] + s->v1[0] + s->mul0[0] + s->mul1[0];
}

/* The hash of three parts that follow each other, from a state that has the key and nothing else yet. */
static inline uint64_t jl_hh_parts_plain(const jl_hh *keyed, const uint8_t *const *parts, const uint64_t *sizes) {
    jl_hh s = *keyed;
    for (int i = 0; i < 3; i++) jl_hh_add(&s, parts[i], sizes[i]);
    return jl_hh_end(&s);
}

#if defined(__x86_64__) && defined(__GNUC__)
#define JL_HH_AVX2 1
#include <immintrin.h>

typedef struct {
    __m256i v0, v1, mul0, mul1;
} jl_hh4;

#define JL_HH_TARGET static inline __attribute__((target("avx2"), always_inline))

JL_HH_TARGET __m256i jl_hh4_zip(__m256i x) {
    const __m256i places = _mm256_setr_epi8(3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7, 3, 12, 2, 5, 14, 1, 15,
                                            0, 11, 4, 10, 13, 9, 6, 8, 7);
    return _mm256_shuffle_epi8(x, places);
}

JL_HH_TARGET void jl_hh4_update(jl_hh4 *s, __m256i lanes) {
    s->v1 = _mm256_add_epi64(s->v1, _mm256_add_epi64(s->mul0, lanes));
    s->mul0 = _mm256_xor_si256(s->mul0, _mm256_mul_epu32(s->v1, _mm256_srli_epi64(s->v0, 32)));
    s->v0 = _mm256_add_epi64(s->v0, s->mul1);
    s->mul1 = _mm256_xor_si256(s->mul1, _mm256_mul_epu32(s->v0, _mm256_srli_epi64(s->v1, 32)));
    s->v0 = _mm256_add_epi64(s->v0, jl_hh4_zip(s->v1));
    s->v1 = _mm256_add_epi64(s->v1, jl_hh4_zip(s->v0));
}

JL_HH_TARGET void jl_hh4_packet(jl_hh4 *s, const uint8_t *data) {
    jl_hh4_update(s, _mm256_loadu_si256((const __m256i *)data));
}

JL_HH_TARGET uint64_t jl_hh4_end(jl_hh4 *s, const uint8_t *rest, uint32_t size) {
    if (size) {
        uint8_t packet[32] = {0};
        uint32_t few = size & 3, whole = size - few;
        const __m128i left = _mm_cvtsi32_si128((int)size), right = _mm_cvtsi32_si128(32 - (int)size);
        s->v0 = _mm256_add_epi64(s->v0, _mm256_set1_epi32((int)size));
        s->v1 = _mm256_or_si256(_mm256_sll_epi32(s->v1, left), _mm256_srl_epi32(s->v1, right));
        memcpy(packet, rest, whole);
        if (size >= 16) {
            memcpy(packet + 28, rest + size - 4, 4);
        } else if (few) {
            packet[16] = rest[whole];
            packet[17] = rest[whole + (few >> 1)];
            packet[18] = rest[size - 1];
        }
        jl_hh4_packet(s, packet);
    }
    for (int i = 0; i < 4; i++) {
        __m256i turned = _mm256_permute2x128_si256(s->v0, s->v0, 1);
        jl_hh4_update(s, _mm256_shuffle_epi32(turned, _MM_SHUFFLE(2, 3, 0, 1)));
    }
    __m256i sum = _mm256_add_epi64(_mm256_add_epi64(s->v0, s->v1), _mm256_add_epi64(s->mul0, s->mul1));
    return (uint64_t)_mm256_extract_epi64(sum, 0);
}

static __attribute__((target("avx2"))) uint64_t jl_hh_parts_avx2(const jl_hh *keyed, const uint8_t *const *parts,
                                                                  const uint64_t *sizes) {
    jl_hh4 s = {_mm256_loadu_si256((const __m256i *)keyed->v0), _mm256_loadu_si256((const __m256i *)keyed->v1),
                _mm256_loadu_si256((const __m256i *)keyed->mul0), _mm256_loadu_si256((const __m256i *)keyed->mul1)};
    uint8_t rest[32];
    uint32_t rest_size = 0;
    for (int i = 0; i < 3; i++) {
        const uint8_t *data = parts[i];
        uint64_t size = sizes[i];
        if (rest_size) {
            uint32_t part = 32 - rest_size;
            if (part > size) part = (uint32_t)size;
            memcpy(rest + rest_size, data, part);
            rest_size += part;
            data += part;
            size -= part;
            if (rest_size < 32) continue;
            jl_hh4_packet(&s, rest);
            rest_size = 0;
        }
        for (; size >= 32; size -= 32, data += 32) jl_hh4_packet(&s, data);
        memcpy(rest, data, size);
        rest_size = (uint32_t)size;
    }
    return jl_hh4_end(&s, rest, rest_size);
}
#endif

static inline uint64_t jl_hh_parts(const jl_hh *keyed, const uint8_t *const *parts, const uint64_t *sizes) {
#ifdef JL_HH_AVX2
    if (__builtin_cpu_supports("avx2")) return jl_hh_parts_avx2(keyed, parts, sizes);
#endif
    return jl_hh_parts_plain(keyed, parts, sizes);
}

#endif
