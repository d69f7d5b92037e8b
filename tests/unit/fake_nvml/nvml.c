/* A stand-in for libnvidia-ml.so.1. Answers come from the text file $FAKE_NVML, read again at each call, in lines
   "name value", or "INDEX.name value" for one device; "err.name code" and "INDEX.err.name code" make that call
   return an NVML code. Only what ddltop asks for. -DOLD_DRIVER has the clock reasons under their old name only;
   -DNO_TEMPERATURE lacks that symbol. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int find(const char *name, unsigned long long *value) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char key[64];
    int is_found = 0;
    while (file && !is_found && fscanf(file, "%63s %llu", key, value) == 2) is_found = strcmp(key, name) == 0;
    if (file) fclose(file);
    return is_found;
}

static int index_of(void *device) { return (int)(size_t)device - 1; }

static unsigned long long answer(void *device, const char *name, unsigned long long otherwise) {
    char key[80];
    unsigned long long value;
    snprintf(key, sizeof key, "%d.%s", index_of(device), name);
    if (device && find(key, &value)) return value;
    return find(name, &value) ? value : otherwise;
}

static int failure(void *device, const char *name) {
    char key[64];
    snprintf(key, sizeof key, "err.%s", name);
    return (int)answer(device, key, 0);
}

static int number(void *device, const char *name, unsigned int *out) {
    *out = (unsigned int)answer(device, name, 0);
    return failure(device, name);
}

typedef struct { unsigned int gpu, memory; } utilization_t;
typedef struct { unsigned long long total, free, used; } memory_t;

int nvmlInitWithFlags(unsigned int flags) { (void)flags; return failure(NULL, "init"); }
int nvmlInit_v2(void) { return failure(NULL, "init"); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { (void)code; return "stub error"; }
int nvmlDeviceGetCount_v2(unsigned int *count) { return number(NULL, "count", count); }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
    *device = (void *)(size_t)(index + 1);
    return failure(*device, "handle");
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned int length) {
    snprintf(text, length, "GPU-fake-%d", index_of(device));
    return failure(device, "uuid");
}

/* "odd_name 1": a terminal sequence; "odd_name 2": bytes that are no UTF-8. */
int nvmlDeviceGetName(void *device, char *text, unsigned int length) {
    static const char *names[] = {"Fake GPU", "Fake\033[2J GPU", "Fake \377 GPU"};
    snprintf(text, length, "%s", names[answer(device, "odd_name", 0)]);
    return failure(device, "name");
}

int nvmlDeviceGetUtilizationRates(void *device, utilization_t *out) {
    out->memory = 0;
    return number(device, "util", &out->gpu);
}

int nvmlDeviceGetMemoryInfo(void *device, memory_t *out) {
    out->total = answer(device, "total", 80000000000ULL);
    out->used = answer(device, "used", 0);
    out->free = out->total - out->used;
    return failure(device, "memory");
}

int nvmlDeviceGetPowerUsage(void *device, unsigned int *out) { return number(device, "power", out); }
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned int *out) { return number(device, "limit", out); }

/* Sensor 0 is the GPU's, clock 1 the SM's: any other is an answer to a question that was not asked. */
#ifndef NO_TEMPERATURE
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned int *out) {
    return sensor == 0 ? number(device, "temp", out) : 2;
}
#endif
int nvmlDeviceGetClockInfo(void *device, int clock, unsigned int *out) {
    return clock == 1 ? number(device, "sm", out) : 2;
}
int nvmlDeviceGetMaxClockInfo(void *device, int clock, unsigned int *out) {
    return clock == 1 ? number(device, "sm_max", out) : 2;
}

#ifdef OLD_DRIVER
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *out) {
#else
int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *out) {
#endif
    *out = answer(device, "reasons", 0);
    return failure(device, "reasons");
}
