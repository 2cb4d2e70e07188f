/* methods-str-is.c - the methods of Python's str that test its characters. */
#include "daemon/model/chat/exec.h"

#define METHOD(name) static struct val str_##name(struct run *r, struct val self, struct val *arg)

static bool all_are(struct run *r, const struct str *s, bool (*is)(uint32_t c))
{
    run_charge_bytes(r, (size_t)s->n * 8);
    for (const char *p = s->p; p < s->p + s->n;)
        if (!is(code_next(&p)))
            return false;
    return s->n;
}
METHOD(isalpha)
{
    (void)arg;
    return v_bool(all_are(r, self.s, code_is_alpha));
}
METHOD(isalnum)
{
    (void)arg;
    return v_bool(all_are(r, self.s, code_is_alnum));
}
METHOD(isdecimal)
{
    (void)arg;
    return v_bool(all_are(r, self.s, code_is_decimal));
}
METHOD(isdigit)
{
    (void)arg;
    return v_bool(all_are(r, self.s, code_is_digit));
}
METHOD(isnumeric)
{
    (void)arg;
    return v_bool(all_are(r, self.s, code_is_numeric));
}
METHOD(isspace)
{
    (void)arg;
    return v_bool(all_are(r, self.s, code_is_space));
}
METHOD(isprintable)
{
    (void)arg;
    return v_bool(!self.s->n || all_are(r, self.s, code_is_printable));
}
static bool is_ascii(uint32_t c)
{
    return c < 0x80;
}
METHOD(isascii)
{
    (void)arg;
    return v_bool(!self.s->n || all_are(r, self.s, is_ascii));
}
METHOD(isidentifier)
{
    const char *p = self.s->p;
    (void)arg;
    return v_bool(self.s->n && code_is_name_start(code_next(&p)) && all_are(r, self.s, code_is_name));
}
METHOD(islower)
{
    return builtin_call(r, test_find(v_text(r, "lower").s), self, &(struct call){.pos = arg});
}
METHOD(isupper)
{
    return builtin_call(r, test_find(v_text(r, "upper").s), self, &(struct call){.pos = arg});
}
METHOD(istitle)
{
    bool cased = false, any = false;
    (void)arg;
    run_charge_bytes(r, (size_t)self.s->n * 8);
    for (const char *p = self.s->p; p < self.s->p + self.s->n;) {
        uint32_t c = code_next(&p);
        bool up = code_is_upper(c) || code_is_title(c), low = code_is_lower(c);
        if ((up && cased) || (low && !cased))
            return v_bool(false);
        cased = up || low;
        any |= cased;
    }
    return v_bool(any);
}

static const struct builtin questions[] = {
    {"isalpha", str_isalpha, "", 0},
    {"isalnum", str_isalnum, "", 0},
    {"isascii", str_isascii, "", 0},
    {"isdecimal", str_isdecimal, "", 0},
    {"isdigit", str_isdigit, "", 0},
    {"isidentifier", str_isidentifier, "", 0},
    {"islower", str_islower, "", 0},
    {"isnumeric", str_isnumeric, "", 0},
    {"isprintable", str_isprintable, "", 0},
    {"isspace", str_isspace, "", 0},
    {"istitle", str_istitle, "", 0},
    {"isupper", str_isupper, "", 0},
    {NULL},
};

const struct builtin *str_is_find(const struct str *name)
{
    return table_find(questions, name);
}
