#ifndef ENTITLEMENT_SYNC_CLINUX_SHIM_H
#define ENTITLEMENT_SYNC_CLINUX_SHIM_H

// How sockets are awaited on Linux; Swift's Glibc module leaves these out.
#include <sys/epoll.h>
#include <sys/eventfd.h>

#endif
