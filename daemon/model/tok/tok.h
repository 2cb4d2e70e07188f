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

/* Borrows g, which must outlive the vocabulary. HEARTH_ECANCELLED by the thread's pace (pace.h). */
int vocab_load(struct vocab **out, const struct gguf *g, struct hearth_err *e);
void vocab_free(struct vocab *v);

uint32_t vocab_size(const struct vocab *v);
/* A hash of the texts that these ids stand for, in hex: the same from every vocabulary in which they mean the same.
 * HEARTH_ENOMEM. */
enum { TOK_HASH = 33 };
int tok_hash(const struct vocab *v, const int32_t *ids, size_t n, char out[static TOK_HASH], struct hearth_err *e);
const char *vocab_kind(const struct vocab *v); /* "gpt2/llama-bpe", "llama" */
/* The most bytes of text that one id can stand for, so that a text of n bytes has at least n / vocab_reach() ids
 * without being encoded; SIZE_MAX where no bound is known. */
size_t vocab_reach(const struct vocab *v);
int32_t vocab_bos(const struct vocab *v);             /* -1: none */
int32_t vocab_eos(const struct vocab *v);             /* -1: none */
bool vocab_add_bos(const struct vocab *v);            /* what the model asks for, with the default of its kind */
bool vocab_is_end(const struct vocab *v, int32_t id); /* eos, eot, eom and the chat end tokens: generation stops here */
int32_t vocab_special(const struct vocab *v, const char *text); /* the special token of exactly this text; -1 */

struct ids {
    int32_t *v;
    size_t n, cap;
};
void ids_fini(struct ids *ids);
int ids_push(struct ids *ids, int32_t id); /* 0 or HEARTH_ENOMEM */

enum {
    TOK_BOS = 1,     /* prepend BOS where the vocabulary has one (ask vocab_add_bos whether it should be) */
    TOK_SPECIAL = 2, /* parse special tokens in the text; user-defined tokens always are */
    TOK_MESSAGE = 4, /* nothing in the text may become markup, whatever its type */
    TOK_GOES_ON = 8, /* the text goes on from what is not there: no space is prepended to it */
};

/* Appends the ids of text[0..n) (any bytes). HEARTH_ENOMEM; HEARTH_EPARAMS where the text is too long;
 * HEARTH_ECANCELLED by the thread's pace (pace.h). */
int tok_encode(const struct vocab *v, const char *text, size_t n, int flags, struct ids *out, struct hearth_err *e);

/* Bytes of a text that a person wrote, as a template's rendering tells them. */
struct tok_span {
    uint32_t from, to; /* text[from..to) */
};

/* The same with every special token parsed, but for control tokens that have a byte in one of the spans, which are in
 * order and do not touch: no message can forge a turn. So has a turn's markup that a file calls user-defined. All else
 * is tokenised across the spans' edges, as one text. */
int tok_encode_spans(const struct vocab *v, const char *text, size_t n, int flags, const struct tok_span *span,
                     size_t n_span, struct ids *out, struct hearth_err *e);

/* The bytes a token stands for in running text: written to out[0..cap), returns their number (what it would need
 * where cap is less). Control tokens give nothing unless `special`. SentencePiece's dummy space is NOT removed here:
 * tok_adds_space() tells the one caller who starts a text to drop it (encode also puts one after each special token).
 * Ids out of range give 0. */
size_t tok_piece(const struct vocab *v, int32_t id, bool special, char *out, size_t cap);
bool tok_adds_space(const struct vocab *v); /* SentencePiece add_space_prefix: encode prepended a space to the text */

/* Tokens by what they are for. */
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

/* Fill in the middle: what stands between a prefix and a suffix. All borrowed; the texts may be any bytes, and nothing
 * in them becomes markup. */
struct fim_file {
    const char *name;
    const char *text;
    size_t n;
};
struct fim {
    const char *prefix, *suffix;
    size_t n_prefix, n_suffix;
    const struct fim_file
        *files; /* others of the same work, in the order in which they shall stand: stable ones first */
    size_t n_files;
    const char *repo, *file; /* names of the work and of the file itself, which the model sees where there are others */
};
bool vocab_has_fim(const struct vocab *v);
/* Appends the ids: BOS where the model wants it, the files, then prefix and suffix in the model's order, up to where
 * the middle begins. HEARTH_EUNSUPPORTED where the vocabulary has no tokens for it. */
int fim_encode(const struct vocab *v, const struct fim *f, struct ids *out, struct hearth_err *e);

#endif
