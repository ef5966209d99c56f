#include "CEmbeddedFiles.h"

// The compiler reads `#embed` at the speed of the disk, and notices when such a file changes. As a literal of Swift the same
// bytes take its type checker a minute.
static const unsigned char replies_json[] = {
#embed "../SupportDesk/Replies/replies.json"
};
static const unsigned char common_passwords_txt[] = {
#embed "../SupportDesk/SignIn/common-passwords.txt"
};
static const unsigned char console_css[] = {
#embed "../SupportConsole/Assets/console.css"
};
static const unsigned char console_js[] = {
#embed "../SupportConsole/Assets/console.js"
};
static const unsigned char apps_mustache[] = {
#embed "../SupportConsole/Templates/apps.mustache"
};
static const unsigned char arrive_mustache[] = {
#embed "../SupportConsole/Templates/arrive.mustache"
};
static const unsigned char causes_mustache[] = {
#embed "../SupportConsole/Templates/causes.mustache"
};
static const unsigned char confirm_mustache[] = {
#embed "../SupportConsole/Templates/confirm.mustache"
};
static const unsigned char dead_mustache[] = {
#embed "../SupportConsole/Templates/dead.mustache"
};
static const unsigned char enrol_mustache[] = {
#embed "../SupportConsole/Templates/enrol.mustache"
};
static const unsigned char figures_mustache[] = {
#embed "../SupportConsole/Templates/figures.mustache"
};
static const unsigned char help_mustache[] = {
#embed "../SupportConsole/Templates/help.mustache"
};
static const unsigned char layout_mustache[] = {
#embed "../SupportConsole/Templates/layout.mustache"
};
static const unsigned char log_mustache[] = {
#embed "../SupportConsole/Templates/log.mustache"
};
static const unsigned char message_mustache[] = {
#embed "../SupportConsole/Templates/message.mustache"
};
static const unsigned char queue_mustache[] = {
#embed "../SupportConsole/Templates/queue.mustache"
};
static const unsigned char runs_mustache[] = {
#embed "../SupportConsole/Templates/runs.mustache"
};
static const unsigned char search_mustache[] = {
#embed "../SupportConsole/Templates/search.mustache"
};
static const unsigned char signin_mustache[] = {
#embed "../SupportConsole/Templates/signin.mustache"
};
static const unsigned char terminal_mustache[] = {
#embed "../SupportConsole/Templates/terminal.mustache"
};
static const unsigned char ticket_mustache[] = {
#embed "../SupportConsole/Templates/ticket.mustache"
};
static const unsigned char user_mustache[] = {
#embed "../SupportConsole/Templates/user.mustache"
};
static const unsigned char messages_json[] = {
#embed "../WebAPI/Messages/messages.json"
};
static const unsigned char openapi_json[] = {
#embed "../WebAPI/OpenAPI/openapi.json"
};

#define FILE(path, bytes) {path, bytes, sizeof(bytes)}

static const embedded_file files[] = {
    FILE("SupportDesk/Replies/replies.json", replies_json),
    FILE("SupportDesk/SignIn/common-passwords.txt", common_passwords_txt),
    FILE("SupportConsole/Assets/console.css", console_css),
    FILE("SupportConsole/Assets/console.js", console_js),
    FILE("SupportConsole/Templates/apps.mustache", apps_mustache),
    FILE("SupportConsole/Templates/arrive.mustache", arrive_mustache),
    FILE("SupportConsole/Templates/causes.mustache", causes_mustache),
    FILE("SupportConsole/Templates/confirm.mustache", confirm_mustache),
    FILE("SupportConsole/Templates/dead.mustache", dead_mustache),
    FILE("SupportConsole/Templates/enrol.mustache", enrol_mustache),
    FILE("SupportConsole/Templates/figures.mustache", figures_mustache),
    FILE("SupportConsole/Templates/help.mustache", help_mustache),
    FILE("SupportConsole/Templates/layout.mustache", layout_mustache),
    FILE("SupportConsole/Templates/log.mustache", log_mustache),
    FILE("SupportConsole/Templates/message.mustache", message_mustache),
    FILE("SupportConsole/Templates/queue.mustache", queue_mustache),
    FILE("SupportConsole/Templates/runs.mustache", runs_mustache),
    FILE("SupportConsole/Templates/search.mustache", search_mustache),
    FILE("SupportConsole/Templates/signin.mustache", signin_mustache),
    FILE("SupportConsole/Templates/terminal.mustache", terminal_mustache),
    FILE("SupportConsole/Templates/ticket.mustache", ticket_mustache),
    FILE("SupportConsole/Templates/user.mustache", user_mustache),
    FILE("WebAPI/Messages/messages.json", messages_json),
    FILE("WebAPI/OpenAPI/openapi.json", openapi_json),
};

size_t embedded_file_count(void) { return sizeof(files) / sizeof(files[0]); }

embedded_file embedded_file_at(size_t index) { return files[index]; }
