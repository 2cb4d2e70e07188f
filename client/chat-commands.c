/* chat-commands.c - the commands of an interactive conversation: lines that begin with a slash. */
#include "client/chat.h"

#include <stdlib.h>
#include <string.h>

struct command {
    const char *name, *args, *doc;
    void (*run)(struct chat *c, char *arg); /* `arg` lives as long as the conversation, so it may be kept */
};
static const struct command commands[];

static void cmd_help(struct chat *c, char *arg)
{
    (void)c, (void)arg;
    for (const struct command *k = commands; k->name; k++) {
        char left[40];
        snprintf(left, sizeof left, "/%s %s", k->name, k->args);
        if (k->doc)
            printf("  %-20s %s\n", left, k->doc);
    }
    puts("  \"\"\"                  begins and ends a message of several lines; so does \\ at a line's end\n"
         "  Ctrl+C               drops the line, or ends the answer; Ctrl+D ends the conversation");
}

static void cmd_bye(struct chat *c, char *arg)
{
    (void)arg;
    c->over = true;
}

static void cmd_clear(struct chat *c, char *arg)
{
    (void)arg;
    if (c->new_name && c->begun) {
        char *name = shell_operand(c->gen->session);
        printf("`hearth resume %s` goes on with the one before\n", name);
        free(name);
    }
    chat_new_session(c);
    puts("a new session");
}

static void cmd_system(struct chat *c, char *arg)
{
    if (!*arg) {
        puts(c->gen->system ? c->gen->system : "no system message waits to be sent");
        return;
    }
    c->gen->system = arg;
    puts("the next message goes with it");
}

/* Only sampling and length can be set during a conversation, not its model or session. */
static bool is_settable(const struct opt *o)
{
    static const char *const not_here[] = {"model",    "session", "system", "stats", "json",
                                           "template", "set",     "think",  NULL};
    for (const char *const *p = not_here; *p; p++)
        if (!strcmp(*p, o->name))
            return false;
    return o->arg != NULL;
}

static void cmd_set(struct chat *c, char *arg)
{
    char *value = arg + strcspn(arg, " \t");
    if (*value)
        *value++ = '\0';
    value += strspn(value, " \t");
    for (const struct opt *o = c->gen->opts; o->name; o++) {
        if (!is_settable(o))
            continue;
        if (!*arg)
            printf("  /set %s %-*s %s\n", o->name, 26 - (int)strlen(o->name), o->arg, o->doc);
        else if (!strcmp(o->name, arg)) {
            if (!*value || !opt_set(o, value))
                opt_explain(o, "/set ", value);
            return;
        }
    }
    if (*arg)
        printf("nothing is called \"%s\"; /set lists what can be set\n", arg);
}

/* Renames the conversation's session, or if that does not exist yet, has it renamed once it does: a session that was
 * created under the name could by then be another conversation's, which the next message would continue. Returns 0, or
 * a code; the name must be free. */
static int name_session(struct chat *c, char *name, struct hearth_err *err)
{
    struct hearth_session_show_result *other;
    int rc = HEARTH_ENOSESSION;
    if (c->begun || !c->new_name) /* with -m, nothing has checked whether the session exists */
        rc = hearth_sessions_rename(c->h, c->gen->session, name, NULL, err);
    if (rc == 0) {
        c->begun = true;
        c->gen->session = name;
        c->name_later = NULL;
        c->new_name = true; /* how to resume it is printed at the end */
    }
    if (c->begun || rc != HEARTH_ENOSESSION)
        return rc;
    rc = hearth_sessions_show(c->h, name, false, &other, NULL, err);
    if (rc == 0) {
        hearth_free(other);
        snprintf(err->msg, sizeof err->msg, "there is a session \"%.80s\" already", name);
        return err->code = HEARTH_ESESSIONEXISTS;
    }
    if (rc == HEARTH_ENOSESSION)
        c->name_later = name;
    return rc == HEARTH_ENOSESSION ? 0 : rc;
}

void chat_name_begun(struct chat *c)
{
    struct hearth_err err;
    char *name = c->name_later;
    if (!name || !c->begun)
        return;
    c->name_later = NULL;
    if (name_session(c, name, &err))
        fail(&err);
}

static void cmd_save(struct chat *c, char *arg)
{
    struct hearth_err err;
    if (!*arg) {
        puts("/save NAME: a name is missing");
        return;
    }
    if (name_session(c, arg, &err)) {
        fail(&err);
        return;
    }
    printf("this conversation %s the session \"%s\"\n", c->name_later ? "becomes" : "is", arg);
}

static const struct command commands[] = {
    {"help", "", "this list", cmd_help},
    {"?", "", NULL, cmd_help},
    {"bye", "", "ends the conversation", cmd_bye},
    {"exit", "", NULL, cmd_bye},
    {"quit", "", NULL, cmd_bye},
    {"clear", "", "begins a new session", cmd_clear},
    {"system", "TEXT", "a system message before the next message", cmd_system},
    {"set", "[NAME VALUE]", "sampling and length, as the options of `hearth chat` have them", cmd_set},
    {"save", "NAME", "gives the session that name", cmd_save},
    {0},
};

/* Keeps a copy of a command's text until the conversation ends. */
static char *keep(struct chat *c, const char *text, size_t len)
{
    char **owned = realloc(c->owned, (c->n_owned + 1) * sizeof *owned), *copy = strndup(text, len);
    if (!owned || !copy)
        abort();
    c->owned = owned;
    return c->owned[c->n_owned++] = copy;
}

/* A line whose first word contains another slash (such as a path), or that starts with a blank, is a message. */
bool chat_command(struct chat *c, struct hearth_bytes line)
{
    if (*line.data != '/')
        return false;
    char *text = keep(c, line.data + 1, line.len - 1);
    size_t word = strcspn(text, " \t\n");
    if (!word || memchr(text, '/', word))
        return false;
    char *arg = text + word;
    if (*arg)
        *arg++ = '\0';
    arg += strspn(arg, " \t\n");
    for (const struct command *k = commands; k->name; k++)
        if (!strcmp(k->name, text)) {
            k->run(c, arg);
            return true;
        }
    fputs("there is no command /", stdout);
    print_text(text, word);
    puts("; /help lists them, and a blank before the slash makes it a message");
    return true;
}
