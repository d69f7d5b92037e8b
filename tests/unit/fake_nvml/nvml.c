/* A stand-in for libnvidia-ml.so.1: answers come from the text file $FAKE_NVML, lines "name value"; "err.name code"
   makes that call fail with the NVML return code. Only what ddltop asks for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned long long answer(const char *name, unsigned long long otherwise) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char key[64];
    unsigned long long value;
    if (!file) return otherwise;
    while (fscanf(file, "%63s %llu", key, &value) == 2) {
        if (strcmp(key, name) == 0) {
            fclose(file);
            return value;
        }
    }
    fclose(file);
    return otherwise;
}

static int failure(const char *name) {
    char key[80];
    snprintf(key, sizeof key, "err.%s", name);
    return (int)answer(key, 0);
}

static int number(const char *name, unsigned int *out) {
    *out = (unsigned int)answer(name, 0);
    return failure(name);
}

typedef struct { unsigned int gpu, memory; } utilization_t;
typedef struct { unsigned long long total, free, used; } memory_t;

int nvmlInitWithFlags(unsigned int flags) { (void)flags; return failure("init"); }
int nvmlInit_v2(void) { return failure("init"); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { (void)code; return "stub error"; }
int nvmlDeviceGetCount_v2(unsigned int *count) { return number("count", count); }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) { *device = (void *)(size_t)(index + 1); return 0; }

int nvmlDeviceGetUUID(void *device, char *text, unsigned int length) {
    snprintf(text, length, "GPU-fake-%d", (int)(size_t)device - 1);
    return failure("uuid");
}

int nvmlDeviceGetName(void *device, char *text, unsigned int length) {
    (void)device;
    snprintf(text, length, "Fake GPU");
    return failure("name");
}

int nvmlDeviceGetUtilizationRates(void *device, utilization_t *out) {
    (void)device;
    out->memory = 0;
    return number("util", &out->gpu);
}

int nvmlDeviceGetMemoryInfo(void *device, memory_t *out) {
    (void)device;
    out->total = answer("total", 80000000000ULL);
    out->used = answer("used", 0);
    out->free = out->total - out->used;
    return failure("memory");
}

int nvmlDeviceGetPowerUsage(void *device, unsigned int *out) { (void)device; return number("power", out); }
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned int *out) { (void)device; return number("limit", out); }

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned int *out) {
    (void)device;
    (void)sensor;
    return number("temp", out);
}

int nvmlDeviceGetClockInfo(void *device, int clock, unsigned int *out) { (void)device; (void)clock; return number("sm", out); }
int nvmlDeviceGetMaxClockInfo(void *device, int clock, unsigned int *out) { (void)device; (void)clock; return number("sm_max", out); }

int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *out) {
    (void)device;
    *out = answer("reasons", 0);
    return failure("reasons");
}
