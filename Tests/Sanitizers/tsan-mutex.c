// Tells Thread Sanitizer what the mutexes of Swift's standard library do; linked into builds for that sanitizer only.
//
// `Synchronization.Mutex` is a word in memory. Taking a free one and leaving one that no thread waits for is compiled into
// the caller, which is instrumented, so the sanitizer sees it. Where threads meet, the rest is done by
// libswiftSynchronization, which is not: the sanitizer then takes what the mutex protects for a race. An executable comes
// before its libraries, so the functions below take the place of those three: they call the library's and tell the
// sanitizer.
// That is exact where a suppression would hide everything that runs under a lock.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

extern void __tsan_acquire(void *address);
extern void __tsan_release(void *address);

#define SWIFT __attribute__((swiftcall))
#define SELF __attribute__((swift_context))

#define LOCK "$s15Synchronization12_MutexHandleV9_lockSlowyys6UInt32VF"
#define TRY_LOCK "$s15Synchronization12_MutexHandleV12_tryLockSlowSbyF"
#define UNLOCK "$s15Synchronization12_MutexHandleV11_unlockSlowyyF"

static SWIFT void (*library_lock)(uint32_t thread, SELF void *mutex);
static SWIFT bool (*library_try_lock)(SELF void *mutex);
static SWIFT void (*library_unlock)(SELF void *mutex);

// Before `main` and so before there are threads to meet.
__attribute__((constructor)) static void find(void) {
    library_lock = dlsym(RTLD_NEXT, LOCK);
    library_try_lock = dlsym(RTLD_NEXT, TRY_LOCK);
    library_unlock = dlsym(RTLD_NEXT, UNLOCK);
    // The library is another than this was written for.
    if (!library_lock || !library_try_lock || !library_unlock) abort();
}

SWIFT void lock_slow(uint32_t thread, SELF void *mutex) __asm__(LOCK);
SWIFT void lock_slow(uint32_t thread, SELF void *mutex) {
    library_lock(thread, mutex);
    __tsan_acquire(mutex);
}

SWIFT bool try_lock_slow(SELF void *mutex) __asm__(TRY_LOCK);
SWIFT bool try_lock_slow(SELF void *mutex) {
    if (!library_try_lock(mutex)) return false;
    __tsan_acquire(mutex);
    return true;
}

SWIFT void unlock_slow(SELF void *mutex) __asm__(UNLOCK);
SWIFT void unlock_slow(SELF void *mutex) {
    __tsan_release(mutex);
    library_unlock(mutex);
}
