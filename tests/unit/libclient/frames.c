/*
 * frames.c - the buffers of a framed connection over a socketpair, in one thread: the peer's bytes are written before
 * they are read, so nothing here waits.
 */
#include "config.h"

#include "libclient/frames.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

enum { FRAME_MAX = 4096, READ = 64, HIGH = 1000, LOW = 100 };

static const struct frames_limits limits = {.frame = FRAME_MAX, .read = READ, .high = HIGH, .low = LOW};

struct ends {
    struct frames f;
    int fd, peer;
};

static struct hearth_err err;

static int setup(void **state)
{
    struct ends *x = calloc(1, sizeof *x);
    int pair[2];
    assert_non_null(x);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    x->fd = pair[0];
    x->peer = pair[1];
    frames_init(&x->f, &limits);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct ends *x = *state;
    frames_fini(&x->f);
    close(x->fd);
    if (x->peer >= 0)
        close(x->peer);
    free(x);
    return 0;
}

static void peer_writes(struct ends *x, const void *data, size_t len)
{
    assert_int_equal(send(x->peer, data, len, MSG_NOSIGNAL | MSG_DONTWAIT), len);
}

static size_t peer_reads(struct ends *x, void *data, size_t room)
{
    ssize_t n = recv(x->peer, data, room, MSG_DONTWAIT);
    assert_true(n >= 0 || errno == EAGAIN);
    return n < 0 ? 0 : (size_t)n;
}

/* A msgpack binary of `len` bytes, head included, that are all `fill`. */
static size_t make_frame(uint8_t *out, size_t len, uint8_t fill)
{
    assert_true(len >= 3 && len - 3 <= 0xffff);
    out[0] = 0xc5;
    out[1] = (uint8_t)((len - 3) >> 8);
    out[2] = (uint8_t)(len - 3);
    memset(out + 3, fill, len - 3);
    return len;
}

static const uint8_t *expect_frame(struct ends *x, const uint8_t *want, size_t len)
{
    const uint8_t *got = NULL, *again = NULL;
    assert_int_equal(frames_next(&x->f, &got, &err), len);
    assert_memory_equal(got, want, len);
    assert_int_equal(frames_next(&x->f, &again, &err), len);
    assert_ptr_equal(again, got); /* the same frame, until it is dropped */
    assert_int_equal(frames_front(&x->f, &again), len);
    assert_ptr_equal(again, got);
    frames_drop(&x->f);
    assert_int_equal(frames_front(&x->f, &again), 0);
    return got;
}

static void expect_none(struct ends *x)
{
    const uint8_t *frame;
    assert_int_equal(frames_next(&x->f, &frame, &err), 0);
}

/* --- input ---------------------------------------------------------------------------------------------- */

/* Lengths on either side of the buffer's first size, so that frames end at the buffer's end, cross it and outgrow
 * it. */
static const size_t lengths[] = {3, 61, 64, 3, 65, 200, 3, 127};
enum { N_FRAMES = sizeof lengths / sizeof *lengths };

static void a_stream_may_be_cut_anywhere(void **state)
{
    struct ends *x = *state;
    uint8_t bytes[1024];
    size_t len = 0;
    for (int i = 0; i < N_FRAMES; i++)
        len += make_frame(bytes + len, lengths[i], (uint8_t)i);
    for (size_t cut = 0; cut <= len; cut++) {
        size_t ends_at[2] = {cut, len}, sent = 0, begin = 0;
        int frame = 0;
        for (int part = 0; part < 2; part++) {
            if (ends_at[part] > sent)
                peer_writes(x, bytes + sent, ends_at[part] - sent);
            sent = ends_at[part];
            while (frames_fill(&x->f, x->fd) > 0)
                continue;
            assert_int_equal(errno, EAGAIN);
            for (; frame < N_FRAMES && begin + lengths[frame] <= sent; frame++) {
                expect_frame(x, bytes + begin, lengths[frame]);
                begin += lengths[frame];
            }
            assert_int_equal(frames_unread(&x->f), sent - begin);
            expect_none(x);
        }
        assert_int_equal(frame, N_FRAMES);
        assert_int_equal(frames_unread(&x->f), 0);
    }
}

static void every_byte_may_come_alone(void **state)
{
    struct ends *x = *state;
    uint8_t bytes[300];
    for (int round = 0; round < 3; round++) {
        size_t len = make_frame(bytes, 100 * (size_t)(round + 1), (uint8_t)round);
        for (size_t i = 0; i < len; i++) {
            expect_none(x);
            peer_writes(x, bytes + i, 1);
            assert_int_equal(frames_fill(&x->f, x->fd), 1);
        }
        expect_frame(x, bytes, len);
    }
}

/* Reading between two frames does not displace the second one. */
static void reading_and_dropping_may_alternate(void **state)
{
    struct ends *x = *state;
    uint8_t frame[50];
    int sent = 0, taken = 0;
    for (int turn = 0; turn < 200; turn++) {
        for (int k = 0; k < 1 + turn % 3; k++, sent++)
            peer_writes(x, frame, make_frame(frame, 20 + (size_t)sent % 30, (uint8_t)sent));
        frames_fill(&x->f, x->fd);
        const uint8_t *got;
        for (int k = 0; k < 2 && frames_next(&x->f, &got, &err) > 0; k++, taken++)
            expect_frame(x, frame, make_frame(frame, 20 + (size_t)taken % 30, (uint8_t)taken));
    }
    while (taken < sent) {
        const uint8_t *got;
        if (frames_next(&x->f, &got, &err) == 0)
            assert_true(frames_fill(&x->f, x->fd) > 0);
        else
            expect_frame(x, frame, make_frame(frame, 20 + (size_t)taken % 30, (uint8_t)taken)), taken++;
    }
    expect_none(x);
}

static void a_frame_of_the_limit_passes_and_one_byte_more_does_not(void **state)
{
    struct ends *x = *state;
    uint8_t bytes[FRAME_MAX + 1];
    peer_writes(x, bytes, make_frame(bytes, FRAME_MAX, 7));
    while (frames_fill(&x->f, x->fd) > 0)
        continue;
    expect_frame(x, bytes, FRAME_MAX);

    /* The head alone is enough to refuse the frame; the rest is not waited for. */
    make_frame(bytes, FRAME_MAX + 1, 7);
    peer_writes(x, bytes, 3);
    assert_int_equal(frames_fill(&x->f, x->fd), 3);
    const uint8_t *frame;
    assert_int_equal(frames_next(&x->f, &frame, &err), HEARTH_ETOOBIG);
    assert_string_equal(err.msg, "the message is over 4096 bytes");
}

static void what_is_no_frame_is_found_behind_one_that_is(void **state)
{
    struct ends *x = *state;
    uint8_t bytes[11];
    bytes[make_frame(bytes, 10, 1)] = 0xc1;
    peer_writes(x, bytes, 11);
    assert_int_equal(frames_fill(&x->f, x->fd), 11);
    expect_frame(x, bytes, 10);
    const uint8_t *frame;
    assert_int_equal(frames_next(&x->f, &frame, &err), HEARTH_EINVALID);
}

/* A claimed length allocates nothing, and the memory of a large frame is freed when the connection is idle. */
static void memory_follows_what_really_came(void **state)
{
    struct ends *x = *state;
    uint8_t bytes[FRAME_MAX];
    make_frame(bytes, FRAME_MAX, 9);
    peer_writes(x, bytes, 3);
    assert_int_equal(frames_fill(&x->f, x->fd), 3);
    expect_none(x);
    assert_int_equal(x->f.in.cap, READ);
    size_t most = 0;
    peer_writes(x, bytes + 3, FRAME_MAX - 3);
    while (frames_fill(&x->f, x->fd) > 0) {
        assert_true(x->f.in.cap <= 2 * x->f.in.len + READ);
        most = x->f.in.cap > most ? x->f.in.cap : most;
    }
    assert_true(most >= FRAME_MAX);
    expect_frame(x, bytes, FRAME_MAX);
    expect_none(x);
    assert_int_equal(x->f.in.cap, 0);
}

/* If the buffer is never empty between reads, the bytes still do not move ever further back in it. */
static void memory_stays_while_a_part_of_a_frame_is_always_left(void **state)
{
    struct ends *x = *state;
    uint8_t frame[40];
    make_frame(frame, sizeof frame, 3);
    peer_writes(x, frame, 10);
    for (int turn = 0; turn < 100; turn++) {
        peer_writes(x, frame + 10, sizeof frame - 10);
        peer_writes(x, frame, 10);
        while (frames_fill(&x->f, x->fd) > 0)
            continue;
        expect_frame(x, frame, sizeof frame);
        expect_none(x);
        assert_int_equal(frames_unread(&x->f), 10);
        assert_true(x->f.in.cap <= 2 * READ);
    }
}

/* The buffer of a large frame doubles at first and then grows by what a socket holds. */
static void a_large_frame_grows_the_buffer_by_steps(void **state)
{
    static const struct frames_limits large = {.frame = 8 << 20, .read = READ};
    struct ends *x = *state;
    enum { LEN = 3 << 20, STEP = 256 << 10 };
    uint8_t *bytes = malloc(LEN);
    assert_non_null(bytes);
    frames_init(&x->f, &large);
    memcpy(bytes, (uint8_t[]){0xc6, (LEN - 5) >> 24, (LEN - 5) >> 16 & 0xff, (LEN - 5) >> 8 & 0xff, (LEN - 5) & 0xff},
           5);
    for (size_t i = 5; i < LEN; i++)
        bytes[i] = (uint8_t)(i * 7 >> 4);
    for (size_t sent = 0; sent < LEN;) {
        ssize_t n = send(x->peer, bytes + sent, LEN - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        assert_true(n > 0);
        sent += (size_t)n;
        while (frames_fill(&x->f, x->fd) > 0) {
            assert_true(x->f.in.cap <= 2 * x->f.in.len + READ);
            assert_true(x->f.in.cap <= x->f.in.len + STEP);
        }
        if (sent < LEN)
            expect_none(x);
    }
    expect_frame(x, bytes, LEN);
    free(bytes);
}

static void the_end_comes_after_the_last_frame(void **state)
{
    struct ends *x = *state;
    uint8_t bytes[10];
    peer_writes(x, bytes, make_frame(bytes, 10, 2));
    close(x->peer);
    x->peer = -1;
    assert_int_equal(frames_fill(&x->f, x->fd), 10);
    assert_int_equal(frames_fill(&x->f, x->fd), 0);
    expect_frame(x, bytes, 10);
    assert_int_equal(frames_flush(&x->f, x->fd), 0); /* there is nothing to send */
}

/* --- output --------------------------------------------------------------------------------------------- */

/* A message as a user packs it. */
static void pack_message(struct ends *x, size_t text)
{
    char msg[200];
    memset(msg, 'm', sizeof msg);
    msg[text] = '\0';
    assert_int_equal(wire_pack_error(frames_out(&x->f), 1, HEARTH_EINVALID, msg, &err), 0);
}

static void what_is_packed_is_sent(void **state)
{
    struct ends *x = *state;
    struct wire_buf want = {0};
    uint8_t got[1000];
    assert_int_equal(frames_flush(&x->f, x->fd), 0);
    pack_message(x, 10);
    pack_message(x, 20);
    assert_int_equal(wire_pack_error(&want, 1, HEARTH_EINVALID, "mmmmmmmmmm", &err), 0);
    assert_int_equal(wire_pack_error(&want, 1, HEARTH_EINVALID, "mmmmmmmmmmmmmmmmmmmm", &err), 0);
    assert_int_equal(frames_pending(&x->f), want.len);
    assert_int_equal(peer_reads(x, got, sizeof got), 0); /* nothing is sent before the flush */
    assert_int_equal(frames_flush(&x->f, x->fd), 0);
    assert_int_equal(frames_pending(&x->f), 0);
    assert_int_equal(peer_reads(x, got, sizeof got), want.len);
    assert_memory_equal(got, want.data, want.len);
    wire_buf_fini(&want);
}

/* Numbered bytes go through a socket that accepts little at a time, while more are being packed. */
static void short_writes_keep_the_order(void **state)
{
    struct ends *x = *state;
    enum { TOTAL = 1 << 20, PIECE = 1000 };
    int small = 4096;
    assert_int_equal(setsockopt(x->fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    uint8_t *got = malloc(TOTAL);
    assert_non_null(got);
    size_t packed = 0, came = 0;
    bool was_full = false;
    while (came < TOTAL) {
        for (int k = 0; k < 30 && packed < TOTAL;
             k++) { /* thirty pieces per iteration are more than the socket accepts */
            struct wire_buf *out = frames_out(&x->f);
            if (out->cap - out->len < PIECE) {
                out->cap = 2 * out->cap + PIECE;
                out->data = realloc(out->data, out->cap);
                assert_non_null(out->data);
            }
            for (size_t n = 0; n < PIECE && packed < TOTAL; n++, packed++)
                out->data[out->len++] = (uint8_t)(packed * 31 >> 3);
        }
        int rc = frames_flush(&x->f, x->fd);
        assert_true(rc == 0 || rc == EAGAIN);
        assert_int_equal(rc == 0, frames_pending(&x->f) == 0);
        was_full |= rc == EAGAIN;
        came += peer_reads(x, got + came, 3000 < TOTAL - came ? 3000 : TOTAL - came);
    }
    assert_true(was_full);
    assert_int_equal(frames_pending(&x->f), 0);
    for (size_t i = 0; i < TOTAL; i++)
        assert_int_equal(got[i], (uint8_t)(i * 31 >> 3));
    free(got);
}

/* Sent bytes do not stay in front of pending ones, and an idle connection has no large buffer. */
static void sent_bytes_are_given_back(void **state)
{
    struct ends *x = *state;
    int small = 4096;
    assert_int_equal(setsockopt(x->fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    while (frames_pending(&x->f) < 1 << 20)
        pack_message(x, 199);
    size_t left = frames_pending(&x->f), compactions = 0;
    assert_int_equal(frames_flush(&x->f, x->fd), EAGAIN);
    while (frames_pending(&x->f)) {
        uint8_t got[65536];
        size_t len = x->f.out.len, n = peer_reads(x, got, sizeof got);
        assert_true(n > 0);
        left -= n;
        frames_flush(&x->f, x->fd);
        assert_true(x->f.out_pos <= x->f.out.len / 2);
        compactions += frames_pending(&x->f) && x->f.out.len < len;
    }
    assert_true(compactions > 3 && compactions < 20); /* the buffer halves between compactions */
    while (left > 0) {
        uint8_t got[65536];
        size_t n = peer_reads(x, got, sizeof got);
        assert_true(n > 0);
        left -= n;
    }
    assert_int_equal(x->f.out.cap, 0);
}

static void a_peer_that_has_gone_is_an_error_and_no_signal(void **state)
{
    struct ends *x = *state;
    pack_message(x, 50);
    close(x->peer);
    x->peer = -1;
    assert_int_equal(frames_flush(&x->f, x->fd), EPIPE);
    assert_true(frames_pending(&x->f) > 0);
    frames_discard(&x->f);
    assert_int_equal(frames_pending(&x->f), 0);
    pack_message(x, 50); /* its user may not have noticed the error yet */
    assert_int_equal(frames_flush(&x->f, x->fd), EPIPE);
}

static void watermarks_are_of_what_is_pending(void **state)
{
    struct ends *x = *state;
    struct wire_buf *out = frames_out(&x->f);
    uint8_t got[2000];
    pack_message(x, 199);
    size_t one = out->len; /* about 220 bytes */
    assert_true(one > LOW && one < HIGH / 2);
    assert_int_equal(frames_level(&x->f), FRAMES_BETWEEN);
    while (frames_pending(&x->f) + one <= HIGH)
        pack_message(x, 199);
    assert_int_equal(frames_level(&x->f), FRAMES_BETWEEN);
    pack_message(x, 199);
    assert_int_equal(frames_level(&x->f), FRAMES_HIGH);

    /* A level that equals a mark is between them. */
    size_t all = out->len;
    out->len = HIGH;
    assert_int_equal(frames_level(&x->f), FRAMES_BETWEEN);
    out->len = HIGH + 1;
    assert_int_equal(frames_level(&x->f), FRAMES_HIGH);
    out->len = LOW;
    assert_int_equal(frames_level(&x->f), FRAMES_BETWEEN);
    out->len = LOW - 1;
    assert_int_equal(frames_level(&x->f), FRAMES_LOW);
    out->len = all;
    assert_int_equal(frames_flush(&x->f, x->fd), 0);
    assert_int_equal(frames_level(&x->f), FRAMES_LOW);
    assert_int_equal(peer_reads(x, got, sizeof got), all);
}

/* --- descriptors ------------------------------------------------------------------------------------------ */

static const struct frames_limits taking = {
    .frame = FRAME_MAX, .read = READ, .high = HIGH, .low = LOW, .takes_fds = true};

static int n_open_fds(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* A descriptor of a new file, which its inode identifies. */
static int new_file(ino_t *ino)
{
    struct stat st;
    int fd = memfd_create("frames", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    *ino = st.st_ino;
    return fd;
}

static void expect_file(int fd, ino_t ino)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_ino, ino);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);
}

static void pack(struct frames *f, size_t len, uint8_t fill, int fd)
{
    uint8_t frame[FRAME_MAX];
    size_t before = frames_pending(f);
    make_frame(frame, len, fill);
    assert_int_equal(wire_buf_add(frames_out(f), frame, len, SIZE_MAX), 0);
    if (fd >= 0)
        assert_int_equal(frames_attach(f, before, fd, &err), 0);
}

/* Of frames of many lengths every third has a descriptor, and one descriptor is queued before all others. Each arrives
 * with its frame. */
static void a_descriptor_travels_with_its_frame(void **state)
{
    struct ends *x = *state;
    enum { N = 30 };
    static const size_t len[] = {3, 61, 700, 64, 65};
    ino_t ino[N] = {0};
    struct frames from;
    int before = n_open_fds(), fds[FRAMES_FDS_IN];
    const uint8_t *data;
    frames_init(&from, &limits);
    x->f.limits = &taking;
    for (int i = 1; i < N; i++)
        pack(&from, len[i % 5], (uint8_t)i, i % 3 ? -1 : new_file(&ino[i]));
    size_t waiting = frames_pending(&from);
    pack(&from, 10, 0, -1);
    assert_int_equal(frames_put_first(&from, waiting), 0);
    int next = 0;
    while (next < N) {
        frames_flush(&from, x->peer);
        if (frames_fill(&x->f, x->fd) < 0)
            assert_int_equal(errno, EAGAIN);
        while (frames_next(&x->f, &data, &err) > 0) {
            uint8_t want[FRAME_MAX];
            size_t n = make_frame(want, next ? len[next % 5] : 10, (uint8_t)next);
            size_t n_fd = frames_take_fds(&x->f, fds);
            assert_int_equal(n_fd, next && next % 3 == 0);
            if (n_fd)
                expect_file(fds[0], ino[next]);
            expect_frame(x, want, n);
            next++;
        }
    }
    frames_fini(&from);
    assert_int_equal(n_open_fds(), before);
}

/* Descriptors that nobody takes are closed: when their frame is dropped, at the end, and if they were never sent. */
static void descriptors_that_nobody_takes_are_closed(void **state)
{
    struct ends *x = *state;
    ino_t ino;
    struct frames from;
    int before = n_open_fds();
    uint8_t want[FRAME_MAX];
    frames_init(&from, &limits);
    x->f.limits = &taking;
    pack(&from, 20, 1, new_file(&ino));
    pack(&from, 20, 2, new_file(&ino));
    assert_int_equal(frames_flush(&from, x->peer), 0);
    pack(&from, 20, 3, new_file(&ino));
    assert_true(frames_fill(&x->f, x->fd) > 0);
    expect_frame(x, want, make_frame(want, 20, 1));
    assert_true(frames_fill(&x->f, x->fd) > 0);
    frames_fini(&x->f);
    frames_fini(&from);
    assert_int_equal(n_open_fds(), before);
}

/* A peer that sends more descriptors than are allowed at a time has its stream ended, and they are closed. */
static void too_many_descriptors_end_the_stream(void **state)
{
    struct ends *x = *state;
    ino_t ino;
    int before = n_open_fds();
    struct frames from;
    frames_init(&from, &limits);
    x->f.limits = &taking;
    uint8_t byte = 0xc5; /* the head of a frame that never ends */
    for (int i = 0; i <= FRAMES_FDS_IN; i++) {
        assert_int_equal(wire_buf_add(frames_out(&from), &byte, 1, SIZE_MAX), 0);
        assert_int_equal(frames_attach(&from, 0, new_file(&ino), &err), 0);
        assert_int_equal(frames_flush(&from, x->peer), 0);
        ssize_t n = frames_fill(&x->f, x->fd);
        assert_int_equal(n, i < FRAMES_FDS_IN ? 1 : -1);
        byte = 0;
    }
    assert_int_equal(errno, EMFILE);
    frames_fini(&x->f);
    frames_fini(&from);
    assert_int_equal(n_open_fds(), before);
}

/* A side that does not accept descriptors gets only the bytes. */
static void descriptors_are_not_taken_unasked(void **state)
{
    struct ends *x = *state;
    ino_t ino;
    int before = n_open_fds(), fds[FRAMES_FDS_IN];
    struct frames from;
    uint8_t want[FRAME_MAX];
    frames_init(&from, &limits);
    pack(&from, 20, 1, new_file(&ino));
    assert_int_equal(frames_flush(&from, x->peer), 0);
    assert_true(frames_fill(&x->f, x->fd) > 0);
    assert_int_equal(frames_take_fds(&x->f, fds), 0);
    expect_frame(x, want, make_frame(want, 20, 1));
    frames_fini(&from);
    assert_int_equal(n_open_fds(), before);
}

int main(void)
{
#define CASE(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_stream_may_be_cut_anywhere),
        CASE(every_byte_may_come_alone),
        CASE(reading_and_dropping_may_alternate),
        CASE(a_frame_of_the_limit_passes_and_one_byte_more_does_not),
        CASE(what_is_no_frame_is_found_behind_one_that_is),
        CASE(memory_follows_what_really_came),
        CASE(memory_stays_while_a_part_of_a_frame_is_always_left),
        CASE(a_large_frame_grows_the_buffer_by_steps),
        CASE(the_end_comes_after_the_last_frame),
        CASE(what_is_packed_is_sent),
        CASE(short_writes_keep_the_order),
        CASE(sent_bytes_are_given_back),
        CASE(a_peer_that_has_gone_is_an_error_and_no_signal),
        CASE(watermarks_are_of_what_is_pending),
        CASE(a_descriptor_travels_with_its_frame),
        CASE(descriptors_that_nobody_takes_are_closed),
        CASE(too_many_descriptors_end_the_stream),
        CASE(descriptors_are_not_taken_unasked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
