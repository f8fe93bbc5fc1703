// The part of llama.cpp's C API that is called here, as cffi reads it. Mirrors include/llama.h and ggml/include/ggml.h
// of release b11549. Enumerations are declared as int32_t: they are int-sized wherever this library is built.
// A structure that is laid out otherwise corrupts memory: capi.py checks the defaults before it passes one.

typedef int32_t llama_pos;  typedef int32_t llama_token;  typedef int32_t llama_seq_id;
typedef struct llama_memory_i * llama_memory_t;
struct llama_model;  struct llama_context;  struct llama_vocab;  struct llama_sampler;

struct ggml_tensor {
    int32_t type;  void * buffer;  int64_t ne[4];  size_t nb[4];
    int32_t op;  int32_t op_params[16];  int32_t flags;
    struct ggml_tensor * src[10];  struct ggml_tensor * view_src;  size_t view_offs;
    void * data;  char name[64];  void * extra;  char padding[8];
};
typedef bool (*cb_eval_t)(struct ggml_tensor * t, bool ask, void * user_data);
typedef bool (*cb_abort_t)(void * data);
typedef bool (*cb_progress_t)(float progress, void * user_data);
typedef void (*cb_log_t)(int level, const char * text, void * user_data);

struct llama_model_kv_override {
    int32_t tag;  char key[128];
    union { int64_t val_i64; double val_f64; bool val_bool; char val_str[128]; };
};
struct llama_model_params {
    void * devices;  void * tensor_buft_overrides;
    int32_t n_gpu_layers;  int32_t split_mode;  int32_t load_mode;  int32_t lazy_mode;  int32_t main_gpu;
    const float * tensor_split;
    cb_progress_t progress_callback;  void * progress_callback_user_data;
    const struct llama_model_kv_override * kv_overrides;
    bool vocab_only;  bool check_tensors;  bool use_extra_bufts;  bool no_host;  bool no_alloc;  bool load_mtp;
};
struct llama_context_params {
    uint32_t n_ctx;  uint32_t n_batch;  uint32_t n_ubatch;  uint32_t n_seq_max;
    uint32_t n_rs_seq;  uint32_t n_outputs_max;  uint32_t n_outputs_max_per_seq;
    int32_t n_threads;  int32_t n_threads_batch;
    int32_t ctx_type;  int32_t rope_scaling_type;  int32_t pooling_type;  int32_t attention_type;
    int32_t flash_attn_type;
    float rope_freq_base;  float rope_freq_scale;
    float yarn_ext_factor;  float yarn_attn_factor;  float yarn_beta_fast;  float yarn_beta_slow;
    uint32_t yarn_orig_ctx;  float defrag_thold;
    cb_eval_t cb_eval;  void * cb_eval_user_data;
    int32_t type_k;  int32_t type_v;
    size_t moe_cache_size;
    cb_abort_t abort_callback;  void * abort_callback_data;
    bool embeddings;  bool offload_kqv;  bool no_perf;  bool op_offload;  bool swa_full;  bool kv_unified;
    void * samplers;  size_t n_samplers;
    struct llama_context * ctx_other;
};
struct llama_batch {
    int32_t n_tokens;  llama_token * token;  float * embd;  llama_pos * pos;
    int32_t * n_seq_id;  llama_seq_id ** seq_id;  int8_t * logits;
};
struct llama_token_data { llama_token id; float logit; float p; };
struct llama_token_data_array { struct llama_token_data * data; size_t size; int64_t selected; bool sorted; };
struct llama_logit_bias { llama_token token; float bias; };
struct llama_sampler_chain_params { bool no_perf; };
struct llama_chat_message { const char * role; const char * content; };
struct llama_perf_context_data {
    double t_start_ms;  double t_load_ms;  double t_p_eval_ms;  double t_eval_ms;
    int32_t n_p_eval;  int32_t n_eval;  int32_t n_reused;
};

const char * ggml_op_name(int op);
const char * ggml_op_desc(const struct ggml_tensor * t);
const char * ggml_type_name(int type);
int64_t ggml_nelements(const struct ggml_tensor * t);
size_t ggml_nbytes(const struct ggml_tensor * t);

void llama_backend_init(void);
void llama_log_set(cb_log_t f, void * user_data);
const char * llama_print_system_info(void);

struct llama_model * llama_model_load_from_file(const char * path, struct llama_model_params p);
void llama_model_free(struct llama_model * m);
const struct llama_vocab * llama_model_get_vocab(const struct llama_model * m);
int32_t llama_model_n_ctx_train(const struct llama_model * m);
int32_t llama_model_n_embd(const struct llama_model * m);
int32_t llama_model_n_embd_out(const struct llama_model * m);
int32_t llama_model_n_layer(const struct llama_model * m);
int32_t llama_model_n_head(const struct llama_model * m);
int32_t llama_model_n_head_kv(const struct llama_model * m);
float llama_model_rope_freq_scale_train(const struct llama_model * m);
int llama_model_rope_type(const struct llama_model * m);
uint64_t llama_model_size(const struct llama_model * m);
uint64_t llama_model_n_params(const struct llama_model * m);
int32_t llama_model_desc(const struct llama_model * m, char * buf, size_t n);
int32_t llama_model_meta_count(const struct llama_model * m);
int32_t llama_model_meta_key_by_index(const struct llama_model * m, int32_t i, char * buf, size_t n);
int32_t llama_model_meta_val_str_by_index(const struct llama_model * m, int32_t i, char * buf, size_t n);
const char * llama_model_chat_template(const struct llama_model * m, const char * name);

int llama_vocab_type(const struct llama_vocab * v);
int32_t llama_vocab_n_tokens(const struct llama_vocab * v);
const char * llama_vocab_get_text(const struct llama_vocab * v, llama_token t);
float llama_vocab_get_score(const struct llama_vocab * v, llama_token t);
int llama_vocab_get_attr(const struct llama_vocab * v, llama_token t);
bool llama_vocab_is_eog(const struct llama_vocab * v, llama_token t);
bool llama_vocab_is_control(const struct llama_vocab * v, llama_token t);
llama_token llama_vocab_bos(const struct llama_vocab * v);
llama_token llama_vocab_eos(const struct llama_vocab * v);
llama_token llama_vocab_eot(const struct llama_vocab * v);
llama_token llama_vocab_sep(const struct llama_vocab * v);
llama_token llama_vocab_nl(const struct llama_vocab * v);
llama_token llama_vocab_pad(const struct llama_vocab * v);
llama_token llama_vocab_mask(const struct llama_vocab * v);
llama_token llama_vocab_fim_pre(const struct llama_vocab * v);
llama_token llama_vocab_fim_suf(const struct llama_vocab * v);
llama_token llama_vocab_fim_mid(const struct llama_vocab * v);
llama_token llama_vocab_fim_pad(const struct llama_vocab * v);
llama_token llama_vocab_fim_rep(const struct llama_vocab * v);
llama_token llama_vocab_fim_sep(const struct llama_vocab * v);
bool llama_vocab_get_add_bos(const struct llama_vocab * v);
bool llama_vocab_get_add_eos(const struct llama_vocab * v);
bool llama_vocab_get_add_sep(const struct llama_vocab * v);
int32_t llama_tokenize(const struct llama_vocab * v, const char * text, int32_t n_text, llama_token * out,
                       int32_t n_max, bool add_special, bool parse_special);
int32_t llama_token_to_piece(const struct llama_vocab * v, llama_token t, char * buf, int32_t n,
                             int32_t lstrip, bool special);
int32_t llama_detokenize(const struct llama_vocab * v, const llama_token * tokens, int32_t n_tokens, char * text,
                         int32_t n_max, bool remove_special, bool unparse_special);
int32_t llama_chat_apply_template(const char * tmpl, const struct llama_chat_message * chat, size_t n_msg,
                                  bool add_ass, char * buf, int32_t n);

struct llama_context * llama_init_from_model(struct llama_model * m, struct llama_context_params p);
void llama_free(struct llama_context * c);
uint32_t llama_n_ctx(const struct llama_context * c);
uint32_t llama_n_ctx_seq(const struct llama_context * c);
uint32_t llama_n_batch(const struct llama_context * c);
uint32_t llama_n_ubatch(const struct llama_context * c);
uint32_t llama_n_seq_max(const struct llama_context * c);
int llama_pooling_type(const struct llama_context * c);
llama_memory_t llama_get_memory(const struct llama_context * c);
int32_t llama_decode(struct llama_context * c, struct llama_batch b);
int32_t llama_encode(struct llama_context * c, struct llama_batch b);
float * llama_get_logits_ith(struct llama_context * c, int32_t i);
float * llama_get_embeddings_ith(struct llama_context * c, int32_t i);
float * llama_get_embeddings_seq(struct llama_context * c, llama_seq_id s);
void llama_set_abort_callback(struct llama_context * c, cb_abort_t f, void * data);
void llama_set_causal_attn(struct llama_context * c, bool causal);
struct llama_perf_context_data llama_perf_context(const struct llama_context * c);

void llama_memory_clear(llama_memory_t m, bool data);
bool llama_memory_seq_rm(llama_memory_t m, llama_seq_id s, llama_pos p0, llama_pos p1);
void llama_memory_seq_cp(llama_memory_t m, llama_seq_id src, llama_seq_id dst, llama_pos p0, llama_pos p1);
void llama_memory_seq_keep(llama_memory_t m, llama_seq_id s);
void llama_memory_seq_add(llama_memory_t m, llama_seq_id s, llama_pos p0, llama_pos p1, llama_pos delta);
void llama_memory_seq_div(llama_memory_t m, llama_seq_id s, llama_pos p0, llama_pos p1, int d);
llama_pos llama_memory_seq_pos_min(llama_memory_t m, llama_seq_id s);
llama_pos llama_memory_seq_pos_max(llama_memory_t m, llama_seq_id s);
bool llama_memory_can_shift(llama_memory_t m);

size_t llama_state_get_size(struct llama_context * c);
size_t llama_state_get_data(struct llama_context * c, uint8_t * dst, size_t n);
size_t llama_state_set_data(struct llama_context * c, const uint8_t * src, size_t n);
size_t llama_state_seq_get_size(struct llama_context * c, llama_seq_id s);
size_t llama_state_seq_get_data(struct llama_context * c, uint8_t * dst, size_t n, llama_seq_id s);
size_t llama_state_seq_set_data(struct llama_context * c, const uint8_t * src, size_t n, llama_seq_id s);

struct llama_sampler * llama_sampler_chain_init(struct llama_sampler_chain_params p);
void llama_sampler_chain_add(struct llama_sampler * chain, struct llama_sampler * s);
struct llama_sampler * llama_sampler_chain_get(struct llama_sampler * chain, int32_t i);
int32_t llama_sampler_chain_n(const struct llama_sampler * chain);
const char * llama_sampler_name(const struct llama_sampler * s);
void llama_sampler_accept(struct llama_sampler * s, llama_token t);
void llama_sampler_apply(struct llama_sampler * s, struct llama_token_data_array * cur_p);
void llama_sampler_reset(struct llama_sampler * s);
struct llama_sampler * llama_sampler_clone(const struct llama_sampler * s);
void llama_sampler_free(struct llama_sampler * s);
uint32_t llama_sampler_get_seed(const struct llama_sampler * s);

struct llama_sampler * llama_sampler_init_greedy(void);
struct llama_sampler * llama_sampler_init_dist(uint32_t seed);
struct llama_sampler * llama_sampler_init_top_k(int32_t k);
struct llama_sampler * llama_sampler_init_top_p(float p, size_t min_keep);
struct llama_sampler * llama_sampler_init_min_p(float p, size_t min_keep);
struct llama_sampler * llama_sampler_init_typical(float p, size_t min_keep);
struct llama_sampler * llama_sampler_init_temp(float t);
struct llama_sampler * llama_sampler_init_temp_ext(float t, float delta, float exponent);
struct llama_sampler * llama_sampler_init_xtc(float p, float t, size_t min_keep, uint32_t seed);
struct llama_sampler * llama_sampler_init_top_n_sigma(float n);
struct llama_sampler * llama_sampler_init_mirostat(int32_t n_vocab, uint32_t seed, float tau, float eta, int32_t m);
struct llama_sampler * llama_sampler_init_mirostat_v2(uint32_t seed, float tau, float eta);
struct llama_sampler * llama_sampler_init_grammar(const struct llama_vocab * v, const char * text, const char * root);
struct llama_sampler * llama_sampler_init_penalties(int32_t n_vocab, int32_t last_n, float repeat, float freq,
                                                    float present);
struct llama_sampler * llama_sampler_init_dry(const struct llama_vocab * v, float multiplier, float base,
                                              int32_t allowed_length, int32_t last_n, const char ** breakers,
                                              size_t n_breakers);
struct llama_sampler * llama_sampler_init_adaptive_p(float target, float decay, uint32_t seed);
struct llama_sampler * llama_sampler_init_logit_bias(int32_t n_vocab, int32_t n, const struct llama_logit_bias * b);
struct llama_sampler * llama_sampler_init_infill(const struct llama_vocab * v);
