// Types with blocks of 32 values: one scale, perhaps a minimum. ↔ ggml/src/ggml-cuda/vecdotq.cuh
//
// A type says how many bytes a block has, in how many units threads share a block's dot product,
// and gives `dot` (one unit with quantized activations) and `value` (one weight, bit for bit as
// the file's reader decodes it); with a minimum also `minimum`, and `above`, the rest of a weight. The layouts are described in llmviz/ggml/quants/legacy.py.

// Activations beside one block of 32: eight ints of four codes, their scale, scale times sum.
struct Beside32 {
    const int * q;
    float d;
    float s;
};

#define LOW(v) ((v) & 0x0F0F0F0F)
#define HIGH(v) (((v) >> 4) & 0x0F0F0F0F)
// the same signed byte four times
#define FOUR(b) ((int) (0x01010101u * (u32) (u8) (b)))

// Four neighbouring bits become bit 4 of four bytes.
DEVICE int fifth(u32 bits) {
    return (int) ((bits & 1) << 4 | (bits & 2) << 11 | (bits & 4) << 18 | (bits & 8) << 25);
}

DEVICE int nibble(const u8 * qs, int i) { return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4; }

struct Q4_0 {
    typedef Beside32 Beside;
    static const int VALUES = 32, BYTES = 18, UNITS = 2;

    DEVICE_MEMBER float dot(const u8 * b, int unit, const Beside32 & y) {
        int sum = 0;
        for (int j = 0; j < 2; ++j) {
            int i = 2 * unit + j, v = load2(b + 2 + 4 * i);
            sum = __dp4a(LOW(v), y.q[i], sum);
            sum = __dp4a(HIGH(v), y.q[i + 4], sum);
            sum = __dp4a(FOUR(-8), y.q[i], sum);
            sum = __dp4a(FOUR(-8), y.q[i + 4], sum);
        }
        return half_at(b) * y.d * (float) sum;
    }

    DEVICE_MEMBER float value(const u8 * b, int i) {
        return __fmul_rn(half_at(b), (float) (nibble(b + 2, i) - 8));
    }
};

struct Q4_1 {
    typedef Beside32 Beside;
    static const int VALUES = 32, BYTES = 20, UNITS = 2;

    DEVICE_MEMBER float dot(const u8 * b, int unit, const Beside32 & y) {
        int sum = 0;
        for (int j = 0; j < 2; ++j) {
            int i = 2 * unit + j, v = load4(b + 4 + 4 * i);
            sum = __dp4a(LOW(v), y.q[i], sum);
            sum = __dp4a(HIGH(v), y.q[i + 4], sum);
        }
        float below = unit == 0 ? half_at(b + 2) * y.s : 0.0f;
        return half_at(b) * y.d * (float) sum + below;
    }

    DEVICE_MEMBER float minimum(const u8 * b) { return half_at(b + 2); }

    DEVICE_MEMBER float above(const u8 * b, int i) {
        return __fmul_rn(half_at(b), (float) nibble(b + 4, i));
    }

    DEVICE_MEMBER float value(const u8 * b, int i) { return __fadd_rn(above(b, i), minimum(b)); }
};

struct Q5_0 {
    typedef Beside32 Beside;
    static const int VALUES = 32, BYTES = 22, UNITS = 2;

    DEVICE_MEMBER float dot(const u8 * b, int unit, const Beside32 & y) {
        u32 high = (u32) load2(b + 2);
        int sum = 0;
        for (int j = 0; j < 2; ++j) {
            int i = 2 * unit + j, v = load2(b + 6 + 4 * i);
            sum = __dp4a(LOW(v) | fifth(high >> 4 * i), y.q[i], sum);
            sum = __dp4a(HIGH(v) | fifth(high >> (16 + 4 * i)), y.q[i + 4], sum);
            sum = __dp4a(FOUR(-16), y.q[i], sum);
            sum = __dp4a(FOUR(-16), y.q[i + 4], sum);
        }
        return half_at(b) * y.d * (float) sum;
    }

    DEVICE_MEMBER float value(const u8 * b, int i) {
        int q = nibble(b + 6, i) | (int) ((u32) load2(b + 2) >> i & 1) << 4;
        return __fmul_rn(half_at(b), (float) (q - 16));
    }
};

struct Q5_1 {
    typedef Beside32 Beside;
    static const int VALUES = 32, BYTES = 24, UNITS = 2;

    DEVICE_MEMBER float dot(const u8 * b, int unit, const Beside32 & y) {
        u32 high = (u32) load4(b + 4);
        int sum = 0;
        for (int j = 0; j < 2; ++j) {
            int i = 2 * unit + j, v = load4(b + 8 + 4 * i);
            sum = __dp4a(LOW(v) | fifth(high >> 4 * i), y.q[i], sum);
            sum = __dp4a(HIGH(v) | fifth(high >> (16 + 4 * i)), y.q[i + 4], sum);
        }
        float below = unit == 0 ? half_at(b + 2) * y.s : 0.0f;
        return half_at(b) * y.d * (float) sum + below;
    }

    DEVICE_MEMBER float minimum(const u8 * b) { return half_at(b + 2); }

    DEVICE_MEMBER float above(const u8 * b, int i) {
        int q = nibble(b + 8, i) | (int) ((u32) load4(b + 4) >> i & 1) << 4;
        return __fmul_rn(half_at(b), (float) q);
    }

    DEVICE_MEMBER float value(const u8 * b, int i) { return __fadd_rn(above(b, i), minimum(b)); }
};

struct Q8_0 {
    typedef Beside32 Beside;
    static const int VALUES = 32, BYTES = 34, UNITS = 2;

    DEVICE_MEMBER float dot(const u8 * b, int unit, const Beside32 & y) {
        int sum = 0;
        for (int j = 0; j < 4; ++j) {
            int i = 4 * unit + j;
            sum = __dp4a(load2(b + 2 + 4 * i), y.q[i], sum);
        }
        return half_at(b) * y.d * (float) sum;
    }

    DEVICE_MEMBER float value(const u8 * b, int i) {
        return __fmul_rn(half_at(b), (float) (i8) b[2 + i]);
    }
};

// Tables of sixteen signed bytes, four in a word.
struct Table {
    u32 words[4];
};

#define WORD(a, b, c, d) \
    ((u32) (u8) (a) | (u32) (u8) (b) << 8 | (u32) (u8) (c) << 16 | (u32) (u8) (d) << 24)

DEVICE Table uneven_steps() {
    Table t = {{WORD(-127, -104, -83, -65), WORD(-49, -35, -22, -10), WORD(1, 13, 25, 38),
                WORD(53, 69, 89, 113)}};
    return t;
}

DEVICE Table doubled_fp4() {
    Table t = {{WORD(0, 1, 2, 3), WORD(4, 6, 8, 12), WORD(0, -1, -2, -3), WORD(-4, -6, -8, -12)}};
    return t;
}

DEVICE int entry(const Table & t, int i) { return (int) (i8) (t.words[i >> 2] >> 8 * (i & 3)); }

// Entries for the four low nibbles of v's first two bytes, in order: a permutation picks by three
// bits, so the lower and the upper half of the table are asked, and the fourth bit decides.
DEVICE u32 four_entries(const Table & t, u32 v) {
    u32 lower = __byte_perm(t.words[0], t.words[1], v & 0x7777);
    u32 upper = __byte_perm(t.words[2], t.words[3], v & 0x7777);
    return __byte_perm(lower, upper, 0x3210 | (v & 0x8888) >> 1);
}

// Entries for the low nibbles of four bytes, and for the high ones.
DEVICE void look_up(const Table & t, int v, int & low, int & high) {
    u32 first = four_entries(t, (u32) v), second = four_entries(t, (u32) v >> 16);
    low = (int) __byte_perm(first, second, 0x6420);
    high = (int) __byte_perm(first, second, 0x7531);
}

struct IQ4_NL {
    typedef Beside32 Beside;
    static const int VALUES = 32, BYTES = 18, UNITS = 2;

    DEVICE_MEMBER float dot(const u8 * b, int unit, const Beside32 & y) {
        Table table = uneven_steps();
        int sum = 0, low, high;
        for (int j = 0; j < 2; ++j) {
            int i = 2 * unit + j;
            look_up(table, load2(b + 2 + 4 * i), low, high);
            sum = __dp4a(low, y.q[i], sum);
            sum = __dp4a(high, y.q[i + 4], sum);
        }
        return half_at(b) * y.d * (float) sum;
    }

    DEVICE_MEMBER float value(const u8 * b, int i) {
        return __fmul_rn(half_at(b), (float) entry(uneven_steps(), nibble(b + 2, i)));
    }
};

struct MXFP4 {
    typedef Beside32 Beside;
    static const int VALUES = 32, BYTES = 17, UNITS = 2;

    // half of 2**(e - 127)
    DEVICE_MEMBER float scale(u8 e) {
        return __uint_as_float(e < 2 ? 0x00200000u << e : (u32) (e - 1) << 23);
    }

    DEVICE_MEMBER float dot(const u8 * b, int unit, const Beside32 & y) {
        Table table = doubled_fp4();
        int sum = 0, low, high;
        for (int j = 0; j < 2; ++j) {
            int i = 2 * unit + j;
            look_up(table, load1(b + 1 + 4 * i), low, high);
            sum = __dp4a(low, y.q[i], sum);
            sum = __dp4a(high, y.q[i + 4], sum);
        }
        return scale(b[0]) * y.d * (float) sum;
    }

    DEVICE_MEMBER float value(const u8 * b, int i) {
        return __fmul_rn(scale(b[0]), (float) entry(doubled_fp4(), nibble(b + 1, i)));
    }
};
