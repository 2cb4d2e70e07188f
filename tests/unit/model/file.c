/*
 * file.c - models in more than one file: split GGUF files, and files that were passed as descriptors. Sound ones open
 * with every tensor in its place; others are refused by a sentence that names the fault.
 */
#include "config.h" /* memfd_create */

#include "tests/unit/model/folder-box.h"

#include <fcntl.h>

#include "daemon/model/passed.h"

/* --- split files --------------------------------------------------------------------------------------- */

enum { PARTS = 3 };

/* Writes a part with one tensor of four numbers, each of which is the part's number; the first part also has the
 * keys. */
static void write_part(const char *name, uint32_t no, uint32_t count, uint32_t total)
{
    struct build b = {0};
    char tensor[16];
    float v[4] = {(float)no, (float)no, (float)no, (float)no};
    put_header(&b, 3, 1, no ? 2 : 4);
    key_u32(&b, "split.no", no);
    key_u32(&b, "split.count", count);
    if (!no) {
        key_u32(&b, "split.tensors.count", total);
        key_str(&b, "general.architecture", "llama");
    }
    snprintf(tensor, sizeof tensor, "t%u", no);
    put_tensor(&b, tensor, 1, (uint64_t[]){4}, DT_F32, 0);
    put_zeros(&b, (32 - b.n % 32) % 32);
    put(&b, v, sizeof v);
    write_file(name, b.p, b.n);
    free(b.p);
}

static void write_parts(void)
{
    write_part("m-00001-of-00003.gguf", 0, PARTS, PARTS);
    write_part("m-00002-of-00003.gguf", 1, PARTS, PARTS);
    write_part("m-00003-of-00003.gguf", 2, PARTS, PARTS);
}

static void check_whole(const char *path)
{
    struct gguf *g;
    struct gguf_str arch;
    struct hearth_err e = {0};
    if (model_file_open(&g, path, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(gguf_n_tensor(g), PARTS);
    for (uint32_t i = 0; i < PARTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%u", i);
        const struct gguf_tensor *t = gguf_tensor_find(g, name);
        assert_non_null(t);
        assert_true(((const float *)t->data)[3] == (float)i);
    }
    assert_int_equal(gguf_str(g, "general.architecture", &arch, &e), 0);
    assert_true(gguf_str_is(arch, "llama"));
    gguf_close(g);
}

static void test_split(void **state)
{
    (void)state;
    write_parts();
    check_whole(in_dir("m-00001-of-00003.gguf"));
    check_whole(in_dir("m-00003-of-00003.gguf")); /* any part stands for the whole model */
}

static void test_split_refused(void **state)
{
    (void)state;
    write_parts();
    unlink(in_dir("m-00002-of-00003.gguf"));
    refused(in_dir("m-00001-of-00003.gguf"), HEARTH_EBADMODEL,
            "part 2 of 3 is missing: there is no m-00002-of-00003.gguf");
    write_part("m-00002-of-00003.gguf", 2, PARTS, PARTS);
    refused(in_dir("m-00001-of-00003.gguf"), HEARTH_EBADMODEL, "says it is part 3 of 3; part 2 of 3 belongs there");
    write_part("m-00002-of-00003.gguf", 1, PARTS, PARTS);
    write_part("m-00001-of-00003.gguf", 0, PARTS, 4);
    refused(in_dir("m-00001-of-00003.gguf"), HEARTH_EBADMODEL, "3 tensors together; split.tensors.count is 4");
    write_part("alone.gguf", 0, PARTS, PARTS);
    refused(in_dir("alone.gguf"), HEARTH_EBADMODEL, "one of 3 parts");
    write_part("m-00001-of-00003.gguf", 0, 1000, PARTS);
    refused(in_dir("m-00001-of-00003.gguf"), HEARTH_EBADMODEL, "the limit is");
}

/* --- files that were passed as descriptors ------------------------------------------------------------------- */

#define PASSED "//7/home/x"

static void pass(const char *name, const char *as)
{
    struct hearth_err e;
    int fd = open(in_dir(name), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(passed_put(as, fd, &e), 0);
}

/* A split model and a folder are removed from the disk after their files were passed: they open by the passed
 * descriptors, twice, and a file that is dropped is reported by its name. */
static void test_passed(void **state)
{
    static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"};
    char as[PATH_MAX];
    struct hearth_err e;
    struct gguf *g;
    (void)state;
    write_parts();
    for (int i = 1; i <= PARTS; i++) {
        char name[32];
        snprintf(name, sizeof name, "m-%05d-of-00003.gguf", i);
        snprintf(as, sizeof as, "%s/%s", PASSED, name);
        pass(name, as);
        unlink(in_dir(name));
    }
    check_whole(PASSED "/m-00001-of-00003.gguf");
    check_whole(PASSED "/m-00001-of-00003.gguf");
    passed_drop(PASSED "/m-00002-of-00003.gguf");
    refused(PASSED "/m-00001-of-00003.gguf", HEARTH_EBADMODEL, "part 2 of 3 is missing");
    write_folder();
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(as, sizeof as, PASSED "/folder/%s", files[i]);
        if (access(in_dir(files[i]), F_OK) == 0)
            pass(files[i], as);
        unlink(in_dir(files[i]));
    }
    for (int i = 0; i < 2; i++) {
        if (model_file_open(&g, PASSED "/folder", &e))
            fail_msg("%s", e.msg);
        gguf_close(g);
    }
    passed_drop(PASSED "/folder/tokenizer.json");
    refused(PASSED "/folder", HEARTH_EUNSUPPORTED, "no tokenizer.json");
    refused("//8/home/x/folder", HEARTH_ENOMODEL, "/home/x/folder: No such file"); /* passed by another user */
    assert_int_equal(passed_put("/home/x", open(dir, O_RDONLY), &e), HEARTH_EPARAMS);
}

/* A passed folder's templates are found whatever else was passed with them; names may have any length. */
static void test_passed_templates(void **state)
{
    static const char long_name[] = "a_name_that_is_longer_than_the_name_of_a_template_may_be_which_is_63_bytes.jinja";
    static const char *const files[] = {"config.json", "tokenizer.json", "model.safetensors"};
    char as[PATH_MAX];
    struct hearth_err e = {0};
    struct gguf *g;
    struct gguf_str s = {"", 0};
    (void)state;
    write_folder();
    write_text("template", "t");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(as, sizeof as, PASSED "/templates/%s", files[i]);
        pass(files[i], as);
    }
    pass("template", PASSED "/templates/chat_template.jinja");
    snprintf(as, sizeof as, PASSED "/templates/additional_chat_templates/%s", long_name);
    pass("template", as);
    pass("template", PASSED "/templates/additional_chat_templates/tool_use.jinja");
    if (model_file_open(&g, PASSED "/templates", &e))
        fail_msg("%s", e.msg);
    assert_int_equal(gguf_str(g, "tokenizer.chat_template.tool_use", &s, &e), 0);
    assert_true(gguf_str_is(s, "t"));
    gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_split, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_split_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_passed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_passed_templates, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
