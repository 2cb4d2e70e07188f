/* standard-fds.h - makes sure that a program's standard input, output and error are open before it opens anything else.
 */
#ifndef HEARTH_STANDARD_FDS_H
#define HEARTH_STANDARD_FDS_H

#include <fcntl.h>
#include <stdbool.h>

/* Opens /dev/null for those that the parent process closed, so that none of the numbers 0 to 2 becomes a socket or a
 * file, which would then receive what is printed. It is opened in the wrong direction (0 for writing, 1 and 2 for
 * reading), so that using one of them fails as it would have. Returns false where that is impossible. */
static inline bool standard_fds_open(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd)
            return false;
    return true;
}

#endif
