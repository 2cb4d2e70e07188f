/*
 * tok-internal.h - the internals of a vocabulary, shared by the files of this directory; everyone else includes tok.h.
 *
 * Every token has a piece: its bytes in running text. Byte-level BPE writes its tokens in an alphabet of 256 printable
 * characters, SentencePiece writes a space as U+2581; both are undone once, when the vocabulary is loaded. From then on
 * text is bytes: a token is looked up by the bytes of the text, and detokenising is a copy.
 */
#ifndef HEARTH_TOK_INTERNAL_H
#define HEARTH_TOK_INTERNAL_H

#include "daemon/model/pace.h"
#include "daemon/model/tok/pretok.h"
#include "daemon/model/tok/tok.h"

struct piece {
    const char *s; /* into the arena or the mapped file */
    uint32_t n;
    uint8_t attr;  /* enum tok_attr */
    bool in_text;  /* plain text may be tokenised to it */
    uint8_t strip; /* white space that a special token takes in: STRIP_LEFT before it, STRIP_RIGHT after it */
    bool late;     /* a special token of a tokenizer.json, searched for in the normalised text that the others leave */
    bool apart;    /* a special token outside a tokenizer.json's own vocabulary: no text merges to it */
    bool word;     /* a special token that is found only where no letter or digit touches it */
    bool shown;    /* a control token that is text of an answer: of a tool call */
    bool named;    /* a byte's token that is also a special token: found by its name, "<0x0A>" */
};

enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };

/* Hash table from bytes to id: open addressing, randomly seeded (see gguf.c). */
struct piece_map {
    uint32_t *slot; /* id + 1; 0: free */
    size_t mask, n;
    uint64_t seed;
};

/* A BPE merge: symbols left and right become `id`. Symbols are ids; those from n_tok on are intermediate results of
 * merges that are no tokens. */
struct merge {
    uint32_t left, right, id;
};

/* Trie of the special tokens' texts. */
struct special_node {
    uint32_t child, next; /* 0: none */
    int32_t id;           /* -1: no token ends here */
    uint8_t byte;
};
struct special_trie {
    struct special_node *node; /* [n]; the root is 0 */
    uint32_t n;
    uint32_t first[256]; /* the root's children by byte */
};

enum vocab_model {
    VOCAB_BPE,       /* byte-level BPE */
    VOCAB_RAW,       /* BPE over characters with byte tokens: gemma4, SentencePiece in a tokenizer.json */
    VOCAB_SPM,       /* SentencePiece by scores */
    VOCAB_UNIGRAM,   /* the most probable segmentation of a word */
    VOCAB_WORDPIECE, /* the longest tokens of a word, from left to right */
};

/* When a space is prepended to a stretch of text. */
enum vocab_prefix {
    PREFIX_NEVER,
    PREFIX_ALWAYS,
    PREFIX_UNLESS_SPACE,
    PREFIX_FIRST /* only to the start of the text, unless it begins with a space */
};

/* SentencePiece's table of replacements, borrowed from the file: charsmap.c. */
struct charsmap {
    const char *trie, *text; /* 32-bit units, unaligned (NULL: no table); the replacements */
    size_t n_trie, n_text;
    bool graphemes; /* applied as the Rust library `tokenizers` applies it */
};

/* What happens to spaces after the characters are normalised. */
enum {
    SPACE_RUNS = 1, /* a run of spaces becomes one space */
    SPACE_START = 2,
    SPACE_END = 4, /* spaces at the start and the end of the text are removed ... */
    SPACE_ANY = 8  /* ... and white space of any kind with them */
};

struct vocab {
    enum vocab_model model;
    char kind[48];
    const struct pretok_kind *pre_kind; /* BPE */
    struct pretok *pre;
    bool ignore_merges; /* a word that is a token becomes it without merging */
    bool fuse_unknown;  /* consecutive unknown characters of a word become one unknown token */
    enum vocab_prefix prefix;
    int normalize; /* utf8proc's options; 0: no Unicode normalisation */
    struct charsmap charsmap;
    uint32_t spaces;               /* SPACE_* */
    bool lowercase, strip_accents; /* WordPiece */
    uint32_t n_tok;
    struct piece *piece; /* [n_piece], tokens first */
    uint32_t n_piece, cap_piece;
    char *arena; /* decoded pieces */
    size_t arena_len;
    struct piece_map map;
    uint32_t max_len; /* longest piece in `map` */
    size_t reach;     /* vocab_reach() */

    struct merge *merges; /* [n_merge], position = rank */
    uint32_t n_merge;
    uint32_t *merge_slot; /* rank + 1 by (left, right) */
    size_t merge_mask;

    struct gguf_nums scores; /* SentencePiece; n = 0: none */
    double *score, worst;    /* [n_tok] Unigram: log-probabilities; worst: their minimum */

    int32_t byte_id[256];  /* the symbol of a single byte; -1 */
    int32_t bos, eos, unk; /* -1: none */
    bool add_bos;

    int32_t role[VOCAB_ROLES]; /* -1: none */
    bool suffix_first;         /* the prompt begins with the suffix, and there is no token for the middle */

    int32_t *end; /* ids that end a generation */
    size_t n_end;
    struct special_trie special; /* of all special tokens, as the file has them */
    struct special_trie normal;  /* of those that are `late`, normalised */
    bool leftmost;               /* from a tokenizer.json: of overlapping special tokens the leftmost is taken */
    bool late;                   /* some special token is `late` */
    bool normal_spaces;          /* U+2581 for a space, and the prefix, belong to the normalised text */
};

/* Returns the length of the white space (Unicode's White_Space) that begins at s or, with `back`, ends there; 0 where
 * there is none within n bytes. */
size_t space_at(const char *s, size_t n, bool back);

/* Whether s[0..n) begins or, with `back`, ends with a word character (\w of Rust's regex). */
bool word_at(const char *s, size_t n, bool back);

/* A text to be tokenised: TOK_* flags, and the ranges of it that a person wrote. */
struct tok_text {
    const char *s;
    size_t n;
    int flags;
    const struct tok_span *span;
    size_t n_span;
};

/* encode.c: appends the id. 0 or HEARTH_ENOMEM. */
int tok_push(struct ids *out, int32_t id, struct hearth_err *e);

/* piece.c: returns the id of the piece text[0..n) where plain text may be tokenised to it, or -1. */
int32_t piece_find(const struct vocab *v, const char *text, size_t n);

/*
 * Greedy merging of pairs, over a doubly linked list of symbols with a heap of candidate pairs, which BPE and
 * SentencePiece share: the best pair is merged until none is left; O(n log n) for any input. `pair` decides whether two
 * neighbours merge, into which symbol, and with which priority (lower is sooner; of equal priorities the leftmost pair
 * merges first).
 */
struct sym {
    uint32_t start, len; /* bytes of the text; len 0: merged away */
    int32_t prev, next;  /* -1: none */
    int32_t id;          /* -1: no token */
};
struct merge_item {
    uint64_t key; /* priority << 32 | left */
    uint32_t right, len;
};
struct merger {
    struct sym *sym;
    size_t n_sym, cap_sym;
    struct merge_item *heap;
    size_t n_heap, cap_heap;
};
typedef bool merge_pair(const struct vocab *v, const char *text, const struct sym *a, const struct sym *b,
                        uint32_t *priority, int32_t *id);
void merger_fini(struct merger *m);
int merger_push(struct merger *m, uint32_t start, uint32_t len, int32_t id); /* 0 or HEARTH_ENOMEM */
/* 0, HEARTH_ENOMEM, or HEARTH_ECANCELLED (pace.h) */
int merger_run(struct merger *m, const struct vocab *v, const char *text, merge_pair *pair);
/* Sets the error for such a result, for a text of n bytes; returns 0 where ret is 0. */
int tok_failed(int ret, size_t n, struct hearth_err *e);

/* bpe_encode tokenises text without special tokens. Returns 0, HEARTH_ENOMEM, or the pre-tokenizer's error. */
int bpe_load(struct vocab *v, const struct gguf *g, const char *pre, struct hearth_err *e);
int bpe_encode(const struct vocab *v, const char *text, size_t n, struct ids *out, struct hearth_err *e);
/* Shared by the two kinds of BPE: loading the merges, whose parts `decode` turns into pieces, and merging within words.
 * `decode` writes at most n bytes and returns their number, or -1. */
typedef int piece_decode(const char *text, size_t n, char *out);
int bpe_load_merges(struct vocab *v, const struct gguf *g, piece_decode *decode, struct hearth_err *e);
merge_pair bpe_pair;
/* Opens v->pre: by `pre` if given, else by the file's own patterns, else by the file's pre-tokenizer name, else by
 * `absent`. */
int bpe_load_pre(struct vocab *v, const struct gguf *g, const char *pre, const char *absent, struct hearth_err *e);
int unigram_load(struct vocab *v, const struct gguf *g, struct hearth_err *e);
int unigram_encode(const struct vocab *v, const char *text, size_t n, enum vocab_prefix prefix, struct ids *out,
                   struct hearth_err *e);
int raw_load(struct vocab *v, const struct gguf *g, struct hearth_err *e);
int raw_encode(const struct vocab *v, const char *text, size_t n, enum vocab_prefix prefix, struct ids *out,
               struct hearth_err *e);
/* The words of a text for raw.c and unigram.c: U+2581 is decoded to spaces, the prefix is added, and the text is split
 * by v->pre. */
struct raw_words {
    char *text;
    uint32_t *end;
    size_t n;
};
int raw_words_init(struct raw_words *w, const struct vocab *v, const char *text, size_t n, enum vocab_prefix when,
                   struct hearth_err *e);
void raw_words_fini(struct raw_words *w);
/* Appends the tokens for a character that has no token itself: those of its bytes, else the unknown token;
 * HEARTH_EPARAMS where the vocabulary has neither. */
int raw_push_bytes(const struct vocab *v, const char *s, uint32_t n, struct ids *out, struct hearth_err *e);
int spm_load(struct vocab *v, const struct gguf *g, struct hearth_err *e);
int spm_encode(const struct vocab *v, const char *text, size_t n, enum vocab_prefix prefix, struct ids *out,
               struct hearth_err *e);
/* Decodes pieces from SentencePiece's form: U+2581 for a space, <0xAB> for a byte. */
int spm_load_pieces(struct vocab *v, struct hearth_err *e);
piece_decode spm_decode;
/* The byte whose token's name begins s[0..SPM_BYTE), "<0xAB>", or -1. */
enum { SPM_BYTE = 6 };
int spm_byte(const char *s);

int wordpiece_load(struct vocab *v, const struct gguf *g, struct hearth_err *e);
int wordpiece_encode(const struct vocab *v, const char *text, size_t n, struct ids *out, struct hearth_err *e);
int charsmap_load(struct vocab *v, const struct gguf *g, struct hearth_err *e);
/* Sets *out to the malloc'd result. HEARTH_ENOMEM; HEARTH_EBADMODEL where a replacement is too long. */
int charsmap_normalize(const struct vocab *v, const char *text, size_t n, char **out, size_t *n_out,
                       struct hearth_err *e);

/* normalize.c: s[0..n), which is UTF-8, in the Unicode form of utf8proc's options; *out is malloc'd. */
int unicode_form(const char *s, size_t n, int options, char **out, size_t *n_out, struct hearth_err *e);

/* normalize.c: applies a Unicode form or a table, where the file has one, and the rules for spaces. *out is malloc'd;
 * NULL: the text needs no change. */
int normalize_load(struct vocab *v, const struct gguf *g, struct hearth_err *e);
int normalize(const struct vocab *v, const char *text, size_t n, char **out, size_t *n_out, struct hearth_err *e);
/* Makes the text in which `late` tokens are searched for: like normalize(), with spaces and a prefix where these belong
 * to it. It is of text[from..to); *k is the index of the first person's span that ends after `from`, and is advanced.
 * What a person wrote is normalised by itself, so that the spans of the result are known. To be freed by
 * normal_text_fini(). */
int normal_text(const struct vocab *v, const struct tok_text *text, size_t from, size_t to, size_t *k, bool prefix,
                struct tok_text *out, struct hearth_err *e);
void normal_text_fini(struct tok_text *t);

/* For loading: finds a symbol, or adds it after the tokens; *id is its id. */
int piece_intern(struct vocab *v, const char *s, size_t n, uint32_t *id);
int piece_index(struct vocab *v, struct hearth_err *e); /* fills `map` with the pieces that are in_text */
/* Prefetches the memory for a later lookup, in stages 0, 1 and 2, with some time between them. */
enum { PREFETCH_STAGES = 3 };
void piece_prefetch(const struct vocab *v, const char *s, size_t n, int stage);

/* Like vocab_load, with the pre-tokenizer `pre` instead of the file's; NULL: the file's. */
int vocab_load_as(struct vocab **out, const struct gguf *g, const char *pre, struct hearth_err *e);

/* Reads a key that is a token's id; *id is unchanged where the file has no such key. */
int vocab_load_id(const struct vocab *v, const struct gguf *g, const char *key, int32_t *id, struct hearth_err *e);

/* fim.c: finds the tokens by role; called when the special tokens are known. */
int roles_load(struct vocab *v, const struct gguf *g, struct hearth_err *e);

/* special.c: the tries, and the split of a text into special tokens and the text between. special_load_late() comes
 * when all else is loaded, since it normalises. */
int special_load(struct vocab *v, const struct gguf *g, struct hearth_err *e);
int special_load_late(struct vocab *v, const struct gguf *g, struct hearth_err *e);
struct special_span {
    uint32_t start, len;
    int32_t id;
};
/* The spans are in text order and do not overlap; *out is malloc'd. With `late`, the text is normalised, and only the
 * tokens are found that are searched for in such text. */
int special_split(const struct vocab *v, const struct tok_text *text, bool late, struct special_span **out,
                  size_t *n_out, struct hearth_err *e);

/* special.c: checks that the ids of tokenizer.ggml.suppress_tokens, which front/sampling-params.c keeps from being
 * sampled, are tokens; HEARTH_EBADMODEL otherwise. */
int suppressed_check(const struct vocab *v, const struct gguf *g, struct hearth_err *e);

#endif
