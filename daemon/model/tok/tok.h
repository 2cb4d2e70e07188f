/*
 * tok.h - a model's vocabulary: text to ids and back, exactly.
 *
 * The kinds are byte-level BPE ("gpt2": bpe.c, words split by pretok.c), BPE over characters (raw.c), SentencePiece
 * ("llama": spm.c), Unigram ("t5": unigram.c) and WordPiece ("bert": wordpiece.c). A vocabulary needs only the metadata
 * of a GGUF file: it works without tensors and for any architecture.
 *
 * Immutable after loading; any thread may use it. Working memory of a call is allocated within it.
 */
#ifndef HEARTH_TOK_H
#define HEARTH_TOK_H

#include "daemon/model/gguf.h"

struct vocab;

enum tok_attr { TOK_NORMAL = 1, TOK_UNKNOWN, TOK_CONTROL, TOK_USER, TOK_UNUSED, TOK_BYTE }; /* GGUF's token_type */

/* Loads a vocabulary from g, which it borrows: g must outlive it. HEARTH_ECANCELLED where the thread's pace function
 * cancels it (pace.h). */
int vocab_load(struct vocab **out, const struct gguf *g, struct hearth_err *e);
void vocab_free(struct vocab *v);

uint32_t vocab_size(const struct vocab *v);
/* A hash, in hex, of the texts that these ids stand for: it is equal in all vocabularies in which the ids mean the
 * same. HEARTH_ENOMEM. */
enum { TOK_HASH = 33 };
int tok_hash(const struct vocab *v, const int32_t *ids, size_t n, char out[static TOK_HASH], struct hearth_err *e);
const char *vocab_kind(const struct vocab *v); /* "gpt2/llama-bpe", "llama" */
/* The most bytes of text that one id can stand for: without encoding it, a text of n bytes is known to have at least n
 * / vocab_reach() ids. SIZE_MAX where no bound is known. */
size_t vocab_reach(const struct vocab *v);
int32_t vocab_bos(const struct vocab *v);                       /* -1: none */
int32_t vocab_eos(const struct vocab *v);                       /* -1: none */
bool vocab_add_bos(const struct vocab *v);                      /* what the file says, or the default of its kind */
bool vocab_is_end(const struct vocab *v, int32_t id);           /* eos, eot, eom and the chat end tokens, which end a
                                                                   generation */
int32_t vocab_special(const struct vocab *v, const char *text); /* the special token with exactly this text, or -1 */

struct ids {
    int32_t *v;
    size_t n, cap;
};
void ids_fini(struct ids *ids);
int ids_push(struct ids *ids, int32_t id); /* 0 or HEARTH_ENOMEM */

enum {
    TOK_BOS = 1,     /* prepend BOS if the vocabulary has one (vocab_add_bos says whether it should be) */
    TOK_SPECIAL = 2, /* recognise special tokens in the text; user-defined tokens always are */
    TOK_MESSAGE = 4, /* nothing in the text may become markup, whatever its token's type */
    TOK_GOES_ON = 8, /* the text continues another one: no space is prepended to it */
};

/* Appends the ids of text[0..n) (any bytes). HEARTH_ENOMEM; HEARTH_EPARAMS where the text is too long;
 * HEARTH_ECANCELLED where the thread's pace function cancels it (pace.h). */
int tok_encode(const struct vocab *v, const char *text, size_t n, int flags, struct ids *out, struct hearth_err *e);

/* A range of bytes that a person wrote, as the rendering of a template reports it. */
struct tok_span {
    uint32_t from, to; /* text[from..to) */
};

/* Like tok_encode(), with all special tokens recognised except control tokens that overlap one of the spans, which are
 * sorted and do not touch each other: no message can forge a turn. The same applies to turn markup that a file calls
 * user-defined. Otherwise the text is tokenised as a whole, across the spans' edges. */
int tok_encode_spans(const struct vocab *v, const char *text, size_t n, int flags, const struct tok_span *span,
                     size_t n_span, struct ids *out, struct hearth_err *e);

/* Writes the bytes that a token stands for in running text to out[0..cap) and returns their number, which may exceed
 * cap. Control tokens yield nothing unless `special`, but for the markup of tool calls. SentencePiece's dummy space is
 * NOT removed here: a caller that decodes from the start of a text drops it if tok_adds_space() (encode also prepends
 * one after each special token). Ids out of range yield 0 bytes. */
size_t tok_piece(const struct vocab *v, int32_t id, bool special, char *out, size_t cap);
/* All bytes of a token, a control token's too; they live as long as the vocabulary. */
const char *tok_bytes(const struct vocab *v, int32_t id, size_t *n);
bool tok_adds_space(const struct vocab *v); /* SentencePiece's add_space_prefix: encode prepends a space to the text */

/* Tokens by their role. */
enum vocab_role {
    ROLE_BOS,
    ROLE_EOS,
    ROLE_EOT,
    ROLE_EOM,
    ROLE_FIM_PRE,
    ROLE_FIM_SUF,
    ROLE_FIM_MID,
    ROLE_FIM_PAD,
    ROLE_FIM_REP,
    ROLE_FIM_SEP,
    VOCAB_ROLES
};
const char *vocab_role_name(enum vocab_role role);               /* "fim_pre" */
int32_t vocab_role(const struct vocab *v, enum vocab_role role); /* -1: none */

/* Fill-in-the-middle: the model generates what belongs between a prefix and a suffix. All fields are borrowed; the
 * texts may be any bytes, and nothing in them becomes markup. */
struct fim_file {
    const char *name;
    const char *text;
    size_t n;
};
struct fim {
    const char *prefix, *suffix;
    size_t n_prefix, n_suffix;
    const struct fim_file
        *files; /* other files of the repository, in the order of the prompt: files that rarely change first */
    size_t n_files;
    const char *repo, *file; /* names of the repository and of the file itself, used only beside other files */
};
bool vocab_has_fim(const struct vocab *v);
/* Appends the ids: BOS where the model wants it, the other files, then prefix and suffix in the model's order, up to
 * where the middle begins. HEARTH_EUNSUPPORTED where the vocabulary has no tokens for it. */
int fim_encode(const struct vocab *v, const struct fim *f, struct ids *out, struct hearth_err *e);

#endif
