/* CRC-32C, which S2 seals its chunks with: by the processor's own instruction where there is one, else by tables. */
#ifndef JL_CRC32C_H
#define JL_CRC32C_H

#include <stdint.h>
#include <string.h>

static inline uint32_t jl_crc32c_plain(uint32_t tables[8][256], uint32_t crc, const uint8_t *data, uint64_t size) {
    uint64_t word;
    for (; size >= 8; size -= 8, data += 8) {
        memcpy(&word, data, 8);
        word ^= crc;
        crc = tables[7][word & 0xff] ^ tables[6][word >> 8 & 0xff] ^ tables[5][word >> 16 & 0xff] ^
              tables[4][word >> 24 & 0xff] ^ tables[3][word >> 32 & 0xff] ^ tables[2][word >> 40 & 0xff] ^
              tables[1][word >> 48 & 0xff] ^ tables[0][word >> 56];
    }
    for (; size; size--, data++) crc = tables[0][(crc ^ *data) & 0xff] ^ crc >> 8;
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#define JL_CRC32C_SSE42 1
static __attribute__((target("sse4.2"))) uint32_t jl_crc32c_sse42(uint32_t crc, const uint8_t *data, uint64_t size) {
    uint64_t word, wide = crc;
    for (; size >= 8; size -= 8, data += 8) {
        memcpy(&word, data, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; size; size--, data++) crc = __builtin_ia32_crc32qi(crc, *data);
    return crc;
}
#endif

static inline uint32_t jl_crc32c(uint32_t tables[8][256], uint32_t crc, const uint8_t *data, uint64_t size) {
#ifdef JL_CRC32C_SSE42
    if (__builtin_cpu_supports("sse4.2")) return jl_crc32c_sse42(crc, data, size);
#endif
    return jl_crc32c_plain(tables, crc, data, size);
}

#endif
