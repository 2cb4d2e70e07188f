/*
 * vfs.c - the file layer (SQLite's VFS) of the database: SQLite's own, except that the unused bytes of a page are
 * written as zeros, and that nothing but plain files is opened.
 *
 * secure_delete overwrites a deleted row in place. But balancing a b-tree moves cells between pages, and a page that
 * was rebuilt for that keeps old bytes between its pointers and its cells: copies of rows, which remain when the rows
 * are removed. VACUUM would clear them, at the price of rewriting the whole file. So this layer clears the gap whenever
 * a page is written. SQLite never reads the gap. A page whose header is not as expected is written unchanged.
 */
#include "config.h"

#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/store/store-internal.h"

enum {
    PAGE_LEAST = 512,
    PAGE_MOST = 65536,
    FILE_HEAD = 100, /* precedes the first page's header */
    /* A page that is not a b-tree page begins with a page number; for numbers below this, its first byte is never a
     * b-tree page's type. */
    PAGES_MOST = 0x2000000,
};

static sqlite3_vfs ours;
static size_t base_size; /* of SQLite's file object, after which ours lies */

struct behind {
    const sqlite3_io_methods *theirs;
    sqlite3_io_methods methods; /* SQLite's, with our xWrite */
};

static struct behind *behind(sqlite3_file *f)
{
    return (struct behind *)((char *)f + base_size);
}

static size_t be16(const uint8_t *p)
{
    return (size_t)p[0] << 8 | p[1];
}

/* Finds the gap of a b-tree page; false if the page is of another kind or not as expected. */
static bool find_gap(const uint8_t *page, size_t size, size_t head, size_t *from, size_t *to)
{
    size_t pointers, n = be16(page + head + 3);
    switch (page[head]) {
    case 2: /* interior page of an index; of a table */
    case 5:
        pointers = head + 12;
        break;
    case 10: /* leaf of an index; of a table */
    case 13:
        pointers = head + 8;
        break;
    default:
        return false;
    }
    *from = pointers + 2 * n;
    *to = be16(page + head + 5);
    if (*to == 0)
        *to = PAGE_MOST;
    if (*from > *to || *to > size)
        return false;
    for (size_t i = 0; i < n; i++) {
        size_t cell = be16(page + pointers + 2 * i);
        if (cell < *to || cell >= size)
            return false;
    }
    return true;
}

static int write_blanked(sqlite3_file *f, const void *data, int len, sqlite3_int64 at)
{
    const sqlite3_io_methods *theirs = behind(f)->theirs;
    uint8_t page[PAGE_MOST];
    size_t from, to;
    sqlite3_int64 size;
    bool is_page = len >= PAGE_LEAST && len <= PAGE_MOST && (len & (len - 1)) == 0 && at % len == 0;
    if (!is_page || !find_gap(data, (size_t)len, at == 0 ? FILE_HEAD : 0, &from, &to) ||
        theirs->xFileSize(f, &size) != SQLITE_OK || size / len >= PAGES_MOST)
        return theirs->xWrite(f, data, len, at);
    memcpy(page, data, (size_t)len);
    memset(page + from, 0, to - from);
    return theirs->xWrite(f, page, len, at);
}

static int open_file(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *out)
{
    sqlite3_vfs *base = vfs->pAppData;
    struct stat sb;
    f->pMethods = NULL;
    if (name && stat(name, &sb) == 0 && !S_ISREG(sb.st_mode)) /* opening a FIFO would block the loop */
        return SQLITE_CANTOPEN;
    int rc = base->xOpen(base, name, f, flags, out);
    if (rc == SQLITE_OK && (flags & SQLITE_OPEN_MAIN_DB) != 0) {
        struct behind *b = behind(f);
        b->theirs = f->pMethods;
        b->methods = *f->pMethods;
        b->methods.xWrite = write_blanked;
        f->pMethods = &b->methods;
    }
    return rc;
}

static void make(void)
{
    sqlite3_vfs *base = sqlite3_vfs_find(NULL);
    ours = *base;
    base_size = ((size_t)base->szOsFile + 15) / 16 * 16;
    ours.szOsFile = (int)(base_size + sizeof(struct behind));
    ours.zName = "hearth";
    ours.pAppData = base;
    ours.xOpen = open_file;
    sqlite3_vfs_register(&ours, 0);
}

const char *store_vfs(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make);
    return ours.zName;
}
