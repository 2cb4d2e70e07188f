/* fake-nvml.h - what the stand-in for libnvidia-ml.so.1 reports; nvml.c sets it. */
#ifndef HEARTH_TEST_FAKE_NVML_H
#define HEARTH_TEST_FAKE_NVML_H

enum { FAKE_PROCESSES = 300 };
struct fake_nvml {
    int init, handle, read; /* return values of these calls; 0: success */
    int begun;              /* calls of nvmlInit_v2() less those of nvmlShutdown() */
    _Atomic unsigned looks; /* readings of the memory that were begun */
    _Atomic unsigned long long total, free,
        used; /* bytes; a test changes them while the neighbours are being watched */
    int display;
    char uuid[64]; /* the requested uuid */
    struct fake_list {
        int rc;
        unsigned n;
        struct {
            unsigned pid;
            unsigned long long bytes;
        } v[FAKE_PROCESSES];
    } compute, graphics;
};

#endif
