/*
 * markdown.c - writes a session as Markdown, for people. See cmd.h.
 *
 * Messages are quoted: each of their lines begins with "> ". A quote is a container, so headings, lists, tables and
 * code fences in it are shown as such and end with it, even where a fence is left open, and a message cannot imitate
 * the document's own headings. A program restores the exact text by removing the two characters.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/cmd.h"

/* Writes a text as a quote. A carriage return ends a line in Markdown too; a NUL is not allowed and becomes U+FFFD. */
static void print_quoted(const char *s, size_t n)
{
    fputs("> ", stdout);
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\n' || s[i] == '\r') {
            i += s[i] == '\r' && i + 1 < n && s[i + 1] == '\n';
            if (i + 1 < n)
                fputs("\n> ", stdout);
        } else if (s[i]) {
            size_t run = strcspn(s + i, "\r\n"); /* the text is NUL-terminated */
            print_text(s + i, run);
            i += run - 1;
        } else {
            fputs("\xef\xbf\xbd", stdout);
        }
    }
    putchar('\n');
}

/* Writes one line with all markup escaped. */
static void print_plain(const char *s)
{
    static const char markup[] = "\\`*_{}[]()<>#+-.!|~&$:@";
    while (*s) {
        size_t run = strcspn(s, markup);
        print_text(s, run);
        if (s[run])
            printf("\\%c", s[run++]);
        s += run;
    }
}

static const char *date(double when, char *out, size_t size)
{
    time_t t = (time_t)when;
    struct tm tm;
    if (!localtime_r(&t, &tm) || !strftime(out, size, "%Y-%m-%d %H:%M", &tm))
        snprintf(out, size, "%.0f", when);
    return out;
}

void markdown_head(const struct hearth_session *s)
{
    char created[64], used[64];
    fputs("# ", stdout);
    print_plain(s->name ? s->name : s->id);
    fputs("\n\nModel ", stdout);
    print_plain(s->model);
    printf(", begun %s, last used %s, %lld tokens in %lld turns\n", date(s->created, created, sizeof created),
           date(s->used, used, sizeof used), (long long)s->tokens, (long long)s->turns);
}

void markdown_turn(const struct hearth_turn *t)
{
    char when[64];
    fputs("\n## ", stdout);
    print_plain(t->role);
    printf("\n\n*%s", date(t->created, when, sizeof when));
    if (t->has_generation) {
        printf(", %lld tokens, ", (long long)t->generation.usage.completion_tokens);
        print_plain(t->generation.finish_reason);
    }
    fputs("*\n\n", stdout);
    size_t n;
    char *text = utf8_mend(t->text.data ? t->text.data : "", t->text.len, &n);
    print_quoted(text, n);
    free(text);
}
