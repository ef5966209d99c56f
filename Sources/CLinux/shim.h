#ifndef ENTITLEMENT_SYNC_CLINUX_SHIM_H
#define ENTITLEMENT_SYNC_CLINUX_SHIM_H

// What Swift's Glibc module leaves out.
#include <sys/epoll.h>
#include <sys/eventfd.h>

#endif
