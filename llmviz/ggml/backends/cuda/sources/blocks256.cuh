// Types with super-blocks of 256 values. ↔ ggml/src/ggml-cuda/vecdotq.cuh
//
// As in blocks32.cuh; the layouts are described in llmviz/ggml/quants/k_quants.py and
// iq_nonlinear.py. Activations share a scale within 256, as ggml's CPU has them.

// Activations beside one super-block: 64 ints of four codes, their scale, sums of 16 codes.
struct Beside256 {
    const int * q;
    float d;
    const i16 * s;
};

// Scale g and minimum g of eight: six bits each in twelve bytes.
DEVICE void scale_and_min(const u8 * p, int g, int & scale, int & low) {
    if (g < 4) {
        scale = p[g] & 63;
        low = p[g + 4] & 63;
    } else {
        scale = (p[g + 4] & 15) | (p[g - 4] >> 6) << 4;
        low = (p[g + 4] >> 4) | (p[g] >> 6) << 4;
    }
}

// Q4_K and Q5_K: a unit is 16 bytes, half of one sub-block in the low nibbles and of the next in
// the high ones; `high` holds fifth bits, or is null.
DEVICE float dot_of_pairs(
    const u8 * b, const u8 * qs, const u8 * high, int unit, const Beside256 & y) {
    int pair = unit / 2, half = unit % 2, g = 2 * pair;
    int sum0 = 0, sum1 = 0, scale0, scale1, low0, low1;
    for (int i = 0; i < 4; ++i) {
        int v = load4(qs + 32 * pair + 16 * half + 4 * i);
        int v0 = LOW(v), v1 = HIGH(v);
        if (high) {
            int h = load4(high + 16 * half + 4 * i) >> g;
            v0 |= (h & 0x01010101) << 4;
            v1 |= (h >> 1 & 0x01010101) << 4;
        }
        sum0 = __dp4a(v0, y.q[8 * g + 4 * half + i], sum0);
        sum1 = __dp4a(v1, y.q[8 * g + 8 + 4 * half + i], sum1);
    }
    scale_and_min(b + 4, g, scale0, low0);
    scale_and_min(b + 4, g + 1, scale1, low1);
    int over = scale0 * sum0 + scale1 * sum1;
    int under = low0 * y.s[2 * g + half] + low1 * y.s[2 * g + 2 + half];
    return half_at(b) * y.d * (float) over - half_at(b + 2) * y.d * (float) under;
}

DEVICE float value_of_pairs(const u8 * b, int q, int i) {
    int scale, low;
    scale_and_min(b + 4, i / 32, scale, low);
    float d = __fmul_rn(half_at(b), (float) scale), m = __fmul_rn(half_at(b + 2), (float) low);
    return __fadd_rn(__fmul_rn(d, (float) q), -m);
}

// Value i of 256 in nibbles: 32 bytes hold two sub-blocks.
DEVICE int paired_nibble(const u8 * qs, int i) {
    u8 byte = qs[i / 64 * 32 + i % 32];
    return i / 32 % 2 ? byte >> 4 : byte & 15;
}

struct Q4_K {
    typedef Beside256 Beside;
    static const int VALUES = 256, BYTES = 144, UNITS = 8;

    DEVICE_MEMBER float dot(const u8 * b, int unit, const Beside256 & y) {
        return dot_of_pairs(b, b + 16, 0, unit, y);
    }

    DEVICE_MEMBER float value(const u8 * b, int i) {
        return value_of_pairs(b, paired_nibble(b + 16, i), i);
    }
};

struct Q5_K {
    typedef Beside256 Beside;
    static const int VALUES = 256, BYTES = 176, UNITS = 8;

    DEVICE_MEMBER float dot(const u8 * b, int unit, const Beside256 & y) {
        return dot_of_pairs(b, b + 48, b + 16, unit, y);
    }

    DEVICE_MEMBER float value(const u8 * b, int i) {
        int q = paired_nibble(b + 48, i) | (b[16 + i % 32] >> i / 32 & 1) << 4;
        return value_of_pairs(b, q, i);
    }
};

struct Q6_K {
    typedef Beside256 Beside;
    static const int VALUES = 256, BYTES = 210, UNITS = 8;

    // a unit is 8 of each 32 values in one half of the super-block
    DEVICE_MEMBER float dot(const u8 * b, int unit, const Beside256 & y) {
        int half = unit / 4, eight = unit % 4, total = 0;
        const u8 * ql = b + 64 * half + 8 * eight, * qh = b + 128 + 32 * half + 8 * eight;
        const i8 * scales = (const i8 *) b + 192 + 8 * half + eight / 2;
        for (int j = 0; j < 4; ++j) {
            int sum = 0;
            for (int i = 0; i < 2; ++i) {
                int v = load2(ql + 32 * (j % 2) + 4 * i), h = load2(qh + 4 * i) >> 2 * j;
                v = (j < 2 ? LOW(v) : HIGH(v)) | (h & 0x03030303) << 4;
                int at = 32 * half + 8 * j + 2 * eight + i;
                sum = __dp4a(v, y.q[at], sum);
                sum = __dp4a(FOUR(-32), y.q[at], sum);
            }
            total += scales[2 * j] * sum;
        }
        return half_at(b + 208) * y.d * (float) total;
    }

    DEVICE_MEMBER float value(const u8 * b, int i) {
        int half = i / 128, j = i / 32 % 4, byte = i % 32;
        u8 low = b[64 * half + 32 * (j % 2) + byte];
        int q = (j < 2 ? low & 15 : low >> 4) | (b[128 + 32 * half + byte] >> 2 * j & 3) << 4;
        float d = __fmul_rn(half_at(b + 208), (float) (i8) b[192 + i / 16]);
        return __fmul_rn(d, (float) (q - 32));
    }
};

struct Q2_K {
    typedef Beside256 Beside;
    static const int VALUES = 256, BYTES = 84, UNITS = 8;

    DEVICE_MEMBER float dot(const u8 * b, int unit, const Beside256 & y) {
        int half = unit / 4, eight = unit % 4, over = 0, under = 0;
        const u8 * qs = b + 16 + 32 * half + 8 * eight;
        for (int j = 0; j < 4; ++j) {
            int scale = b[8 * half + 2 * j + eight / 2], sum = 0, all = 0;
            for (int i = 0; i < 2; ++i) {
                int at = 32 * half + 8 * j + 2 * eight + i;
                sum = __dp4a(load4(qs + 4 * i) >> 2 * j & 0x03030303, y.q[at], sum);
                all = __dp4a(FOUR(1), y.q[at], all);
            }
            over += (scale & 15) * sum;
            under += (scale >> 4) * all;
        }
        return half_at(b + 80) * y.d * (float) over - half_at(b + 82) * y.d * (float) under;
    }

    DEVICE_MEMBER float value(const u8 * b, int i) {
        int q = b[16 + i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3, scale = b[i / 16];
        float d = __fmul_rn(half_at(b + 80), (float) (scale & 15));
        float m = __fmul_rn(half_at(b + 82), (float) (scale >> 4));
        return __fadd_rn(__fmul_rn(d, (float) q), -m);
    }
};

struct Q3_K {
    typedef Beside256 Beside;
    static const int VALUES = 256, BYTES = 110, UNITS = 8;

    DEVICE_MEMBER int scale(const u8 * p, int g) {
        int low = g < 8 ? p[g] & 15 : p[g - 8] >> 4;
        return (low | (p[8 + g % 4] >> 2 * (g / 4) & 3) << 4) - 32;
    }

    DEVICE_MEMBER float dot(const u8 * b, int unit, const Beside256 & y) {
        int half = unit / 4, eight = unit % 4, total = 0;
        const u8 * qs = b + 32 + 32 * half + 8 * eight;
        for (int j = 0; j < 4; ++j) {
            int sum = 0;
            for (int i = 0; i < 2; ++i) {
                int third = load2(b + 8 * eight + 4 * i) >> (4 * half + j) & 0x01010101;
                int v = (load2(qs + 4 * i) >> 2 * j & 0x03030303) | third << 2;
                int at = 32 * half + 8 * j + 2 * eight + i;
                sum = __dp4a(v, y.q[at], sum);
                sum = __dp4a(FOUR(-4), y.q[at], sum);
            }
            total += scale(b + 96, 8 * half + 2 * j + eight / 2) * sum;
        }
        return half_at(b + 108) * y.d * (float) total;
    }

    DEVICE_MEMBER float value(const u8 * b, int i) {
        int q = b[32 + i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;
        q |= (b[i % 32] >> i / 32 & 1) << 2;
        float d = __fmul_rn(half_at(b + 108), (float) scale(b + 96, i / 16));
        return __fmul_rn(d, (float) (q - 4));
    }
};

struct IQ4_XS {
    typedef Beside256 Beside;
    static const int VALUES = 256, BYTES = 136, UNITS = 8;

    DEVICE_MEMBER int scale(const u8 * b, int g) {
        int high = *(const u16 *) (b + 2) >> 2 * g & 3;
        return ((b[4 + g / 2] >> 4 * (g % 2) & 15) | high << 4) - 32;
    }

    DEVICE_MEMBER float dot(const u8 * b, int unit, const Beside256 & y) {
        Table table = uneven_steps();
        int sum = 0, low, high;
        for (int i = 0; i < 4; ++i) {
            look_up(table, load4(b + 8 + 16 * unit + 4 * i), low, high);
            sum = __dp4a(low, y.q[8 * unit + i], sum);
            sum = __dp4a(high, y.q[8 * unit + 4 + i], sum);
        }
        return half_at(b) * y.d * (float) (scale(b, unit) * sum);
    }

    DEVICE_MEMBER float value(const u8 * b, int i) {
        int q = nibble(b + 8 + i / 32 * 16, i % 32);
        float d = __fmul_rn(half_at(b), (float) scale(b, i / 32));
        return __fmul_rn(d, (float) entry(uneven_steps(), q));
    }
};
