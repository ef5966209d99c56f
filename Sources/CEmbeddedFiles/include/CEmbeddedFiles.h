#ifndef ENTITLEMENT_SYNC_CEMBEDDEDFILES_H
#define ENTITLEMENT_SYNC_CEMBEDDEDFILES_H

#include <stddef.h>

/// A file of `Sources` as it was when the program was built.
typedef struct {
    /// The path below `Sources`.
    const char *path;
    const unsigned char *bytes;
    size_t count;
} embedded_file;

/// The number of embedded files.
size_t embedded_file_count(void);

/// The file with a number from 0 to the count.
embedded_file embedded_file_at(size_t index);

#endif
