/* standard-fds.h - standard input, output and error of a program, before it opens anything else. */
#ifndef HEARTH_STANDARD_FDS_H
#define HEARTH_STANDARD_FDS_H

#include <fcntl.h>
#include <stdbool.h>

/* Opens /dev/null for those that the caller has closed, so that none of their numbers becomes a socket's or a file's,
 * which would then get what is printed. It is opened the wrong way round: using one of them fails, as it would have. */
static inline bool standard_fds_open(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd)
            return false;
    return true;
}

#endif
