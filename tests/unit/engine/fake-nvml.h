/* fake-nvml.h - what the stand-in for libnvidia-ml.so.1 says; nvml.c sets it. */
#ifndef HEARTH_TEST_FAKE_NVML_H
#define HEARTH_TEST_FAKE_NVML_H

enum { FAKE_PROCESSES = 300 };
struct fake_nvml {
    int init, handle, read;                       /* results of these calls; 0: well */
    int begun;                                    /* nvmlInit_v2() less nvmlShutdown() */
    _Atomic unsigned looks;                       /* that were begun */
    _Atomic unsigned long long total, free, used; /* bytes; a test changes them while the neighbours are looked at */
    int display;
    char uuid[64]; /* that was asked for */
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
