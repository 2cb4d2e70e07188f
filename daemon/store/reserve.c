/*
 * reserve.c - a file that reserves disk space, so that sessions can still be removed when the disk is full.
 *
 * A removal needs space before it frees any: SQLite appends the changed pages to its log, and the log can only be
 * truncated once its pages have been copied to the database file, which grows by those that are new. On a completely
 * full disk the reserve is deleted to make that possible, and is created again afterwards.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/store/store-internal.h"

static const char name[] = "reserve";

/* SQLite checkpoints the log when it has 1000 pages of 4 KiB; a removal writes less than that. The reserve is smaller
 * on a small disk. */
enum { LEAST = 256 << 10, MOST = 8 << 20, SHARE = 64 };

static off_t size_of_reserve(const struct statvfs *disk)
{
    uint64_t size = (uint64_t)disk->f_blocks * disk->f_frsize / SHARE;
    return size < LEAST ? LEAST : size > MOST ? MOST : (off_t)size;
}

/* Allocates `size` bytes, or as many as there is room for by halving, but never less than `has`. Returns 0, or the
 * error if there is no reserve. */
static int allocate(int fd, off_t has, off_t size)
{
    int why = posix_fallocate(fd, 0, size);
    while (why == ENOSPC && has < LEAST && size / 2 >= LEAST && ftruncate(fd, 0) == 0)
        why = posix_fallocate(fd, 0, size /= 2);
    return has < LEAST ? why : 0;
}

void store_reserve_make(struct store *st)
{
    struct statvfs disk;
    struct stat sb;
    int fd = openat(st->dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fstatvfs(st->dir_fd, &disk) != 0 || fstat(fd, &sb) != 0 || !S_ISREG(sb.st_mode)) {
        log_warn("no room is kept for removing sessions from a full disk: %s: %s", name, strerror(errno));
    } else if (sb.st_blocks * 512 < size_of_reserve(&disk)) {
        int why = allocate(fd, sb.st_blocks * 512, size_of_reserve(&disk));
        if (why && unlinkat(st->dir_fd, name, 0) == 0)
            log_debug("no room is kept for removing sessions from a full disk: %s", strerror(why));
    }
    if (fd >= 0)
        close(fd);
}

bool store_reserve_give(struct store *st)
{
    if (unlinkat(st->dir_fd, name, 0) != 0)
        return false;
    log_info("the disk is full: the reserve gives way");
    return true;
}
