#ifndef CLIBPQ_SHIM_H
#define CLIBPQ_SHIM_H

#include <libpq-fe.h>

// The PG_DIAG macros are character literals, which Swift does not import.
static const int clibpq_diag_severity = PG_DIAG_SEVERITY_NONLOCALIZED;
static const int clibpq_diag_sqlstate = PG_DIAG_SQLSTATE;
static const int clibpq_diag_message = PG_DIAG_MESSAGE_PRIMARY;
static const int clibpq_diag_detail = PG_DIAG_MESSAGE_DETAIL;
static const int clibpq_diag_hint = PG_DIAG_MESSAGE_HINT;
static const int clibpq_diag_position = PG_DIAG_STATEMENT_POSITION;
static const int clibpq_diag_context = PG_DIAG_CONTEXT;
static const int clibpq_diag_table = PG_DIAG_TABLE_NAME;
static const int clibpq_diag_column = PG_DIAG_COLUMN_NAME;
static const int clibpq_diag_constraint = PG_DIAG_CONSTRAINT_NAME;
static const int clibpq_diag_function = PG_DIAG_SOURCE_FUNCTION;

#endif
