/* folders.h - the tiny models in Hugging Face form: those in the source tree, and those of every architecture beside
 * it. */
#ifndef HEARTH_TESTS_FOLDERS_H
#define HEARTH_TESTS_FOLDERS_H

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Calls use() with the path of each folder. */
static inline void folders_each(void (*use)(const char *path))
{
    const char *shared = getenv("HEARTH_SHARED"), *ours = getenv("top_srcdir");
    char pattern[4096];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/tests/golden/data/hf/*/", ours ? ours : "..");
    glob(pattern, 0, NULL, &found);
    snprintf(pattern, sizeof pattern, "%s/models/hf-tiny/*/", shared ? shared : "../shared");
    glob(pattern, GLOB_APPEND, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        found.gl_pathv[i][strlen(found.gl_pathv[i]) - 1] = '\0'; /* the trailing slash */
        use(found.gl_pathv[i]);
    }
    globfree(&found);
}

#endif
