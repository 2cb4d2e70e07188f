/*
 * replay.c - main() of a fuzz target without libFuzzer: runs it with every file of the corpus and reports in TAP.
 * Without arguments the corpus of a target fuzz-NAME is $top_srcdir/tests/fuzz/corpus/NAME. A target aborts on failure,
 * so a file passes if the target returns.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int n_run, n_bad;

static void run_file(const char *path, const char *name)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    uint8_t *data = NULL;
    int ok = f && !fstat(fileno(f), &st);

    if (ok) {
        size_t size = (size_t)st.st_size;
        data = malloc(size ? size : 1);
        ok = data && fread(data, 1, size, f) == size;
        if (ok) {
            printf("# %s\n", name);
            fflush(stdout); /* so that the last line before a crash names the file */
            LLVMFuzzerTestOneInput(data, size);
        }
    }
    n_bad += !ok;
    printf("%sok %d - %s\n", ok ? "" : "not ", ++n_run, name);
    free(data);
    if (f)
        fclose(f);
}

static int run_dir(const char *dir)
{
    struct dirent **entry;
    int n = scandir(dir, &entry, NULL, alphasort);
    if (n < 0) {
        printf("Bail out! cannot read %s\n", dir);
        return -1;
    }
    for (int i = 0; i < n; i++) {
        char path[4096];
        if (entry[i]->d_name[0] != '.' &&
            snprintf(path, sizeof path, "%s/%s", dir, entry[i]->d_name) < (int)sizeof path)
            run_file(path, entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
    return 0;
}

int main(int argc, char **argv)
{
    char dir[4096];
    const char *top = getenv("top_srcdir"), *name = strstr(argv[0], "fuzz-");
    int rc = 0;

    if (argc < 2) {
        while (name && strstr(name + 1, "fuzz-"))
            name = strstr(name + 1, "fuzz-");
        snprintf(dir, sizeof dir, "%s/tests/fuzz/corpus/%s", top ? top : ".", name ? name + 5 : "");
        rc = run_dir(dir);
    }
    for (int i = 1; i < argc && !rc; i++)
        rc = run_dir(argv[i]);
    printf("1..%d\n", n_run);
    return rc || n_bad || !n_run;
}
