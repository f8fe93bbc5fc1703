// Ops that treat every value alike: sums, products, activations, gates. Results are contiguous.
// ↔ ggml/src/ggml-cuda/{binbcast,unary,scale,clamp}.cu

struct Binary {
    const float * a;
    const float * b;
    float * out;
    Strided a_at;
    Strided b_at;
    i64 n;
    int a_is_flat;  // contiguous
    int b_is_flat;  // contiguous, and of a's shape
};

#define BINARY(name, expression) \
    KERNEL name(Binary g) { \
        EACH(i, g.n) { \
            float a = g.a_is_flat ? g.a[i] : float_at(g.a, offset_of(g.a_at, g.a_at.ne, i)); \
            float b = g.b_is_flat ? g.b[i] : float_at(g.b, offset_of(g.b_at, g.a_at.ne, i)); \
            g.out[i] = expression; \
        } \
    }

BINARY(add_f32, a + b)
BINARY(mul_f32, a * b)
BINARY(div_f32, a / b)

struct Unary {
    const float * a;
    float * out;
    const float * table;  // for GELU: one value for each half float
    Strided a_at;
    i64 n;
    int a_is_flat;
    float p0;
    float p1;
};

// Looked up for x rounded to a half float, as ggml's CPU does.
DEVICE float gelu(float x, const float * table) {
    return x >= 10.0f ? x : table[float_to_half(x)];
}

DEVICE float silu(float x) { return x / (1.0f + expf(-x)); }

#define UNARY(name, expression) \
    KERNEL name(Unary g) { \
        EACH(i, g.n) { \
            float x = g.a_is_flat ? g.a[i] : float_at(g.a, offset_of(g.a_at, g.a_at.ne, i)); \
            g.out[i] = expression; \
        } \
    }

UNARY(scale_f32, x * g.p0)
UNARY(sqr_f32, x * x)
UNARY(clamp_f32, fminf(fmaxf(x, g.p0), g.p1))
UNARY(gelu_f32, gelu(x, g.table))
UNARY(relu_f32, fmaxf(x, 0.0f))
UNARY(sigmoid_f32, 1.0f / (1.0f + expf(-x)))
UNARY(silu_f32, silu(x))
UNARY(tanh_f32, tanhf(x))

struct Fill {
    float * out;
    i64 n;
    float value;
};

KERNEL fill_f32(Fill g) {
    EACH(i, g.n) g.out[i] = g.value;
}

struct Gate {
    const float * gate;
    const float * up;
    float * out;
    const float * table;  // for GELU
    Strided gate_at;
    Strided up_at;
    i64 n;
    int width;  // values in a row of the result
    int is_flat;
    float alpha;
    float limit;
};

// `x` is the gate, `y` what it opens
#define GATE(name, expression) \
    KERNEL name(Gate g) { \
        EACH(i, g.n) { \
            int column; \
            i64 row = divide(i, g.width, column); \
            float x = g.is_flat ? g.gate[i] : float_at(g.gate, row_offset(g.gate_at, row) + 4 * (i64) column); \
            float y = g.is_flat ? g.up[i] : float_at(g.up, row_offset(g.up_at, row) + 4 * (i64) column); \
            g.out[i] = expression; \
        } \
    }

DEVICE float oai(float x, float y, float alpha, float limit) {
    x = fminf(x, limit);
    y = fminf(fmaxf(y, -limit), limit);
    return x / (1.0f + expf(-alpha * x)) * (y + 1.0f);
}

GATE(swiglu_f32, silu(x) * y)
GATE(geglu_f32, gelu(x, g.table) * y)
GATE(reglu_f32, fmaxf(x, 0.0f) * y)
GATE(swiglu_oai_f32, oai(x, y, g.alpha, g.limit))
