/* Who sshd and its helpers believe to run as, in an image of which nothing is known.
 *
 * Linked before the C library, whose functions of the same names are left out then. The image's own /etc/passwd need
 * not know the uid that the pod runs as, and /etc/shadow cannot be written; so there is one account here, `user`, with
 * the process's own uid and gid, and its password is the launch's key, read anew at each sign-in:
 *
 *   $MLPORTAL_LIVE/closed     (/run/mlportal)  the instance was told to end: no password is right
 *   $MLPORTAL_LIVE/key                         the key that the portal wrote into the running instance
 *   $MLPORTAL_SECRETS/key     (/etc/mlportal)  the key as the pod began with it
 */
#define _GNU_SOURCE
#include <crypt.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <nss.h>
#include <pwd.h>
#include <shadow.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static const char NAME[] = "user";
static const char ALPHABET[] = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/* Other services of /etc/nsswitch.conf are shared objects of the image's C library, which this program must not load. */
__attribute__((constructor)) static void know_no_other_services(void)
{
    static const char *databases[] = {"passwd", "shadow", "group", "services", "networks", "protocols"};
    for (size_t i = 0; i < sizeof databases / sizeof *databases; i++)
        __nss_configure_lookup(databases[i], "files");
    __nss_configure_lookup("hosts", "files dns");
}

static const char *setting(const char *name, const char *otherwise)
{
    const char *found = getenv(name);
    return found && *found ? found : otherwise;
}

static struct passwd *account(void)
{
    static struct passwd found;
    found.pw_name = (char *)NAME;
    found.pw_passwd = "x";
    found.pw_uid = getuid();
    found.pw_gid = getgid();
    found.pw_gecos = "";
    found.pw_dir = (char *)setting("HOME", "/root");
    found.pw_shell = (char *)setting("MLPORTAL_SHELL", "/opt/mlportal/bin/sh");
    return &found;
}

struct passwd *getpwnam(const char *name)
{
    return strcmp(name, NAME) == 0 ? account() : NULL;
}

struct passwd *getpwuid(uid_t uid)
{
    return uid == getuid() ? account() : NULL;
}

/* sshd gives a terminal to this group, and may only choose one that the process is in. */
struct group *getgrnam(const char *name)
{
    static char *nobody[] = {NULL};
    static struct group found;
    if (strcmp(name, "tty") != 0)
        return NULL;
    found.gr_name = "tty";
    found.gr_passwd = "x";
    found.gr_gid = getgid();
    found.gr_mem = nobody;
    return &found;
}

struct group *getgrgid(gid_t gid)
{
    (void)gid;
    return NULL;
}

/* The text of a small file without its line's end; -1 when it is not there. */
static int content(const char *folder, const char *name, char *into, size_t room)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return -1;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t count = read(file, into, room - 1);
    close(file);
    if (count < 0)
        return -1;
    while (count > 0 && (into[count - 1] == '\n' || into[count - 1] == '\r'))
        count--;
    into[count] = '\0';
    return (int)count;
}

static const char *present_password(void)
{
    static char hashed[CRYPT_OUTPUT_SIZE];
    const char *live = setting("MLPORTAL_LIVE", "/run/mlportal");
    char key[512] = "", path[4096], salt[64] = "$6$rounds=1000$";
    unsigned char random[16];

    if (snprintf(path, sizeof path, "%s/closed", live) >= (int)sizeof path || access(path, F_OK) == 0)
        return "*";
    if (content(live, "key", key, sizeof key) <= 0 &&
        content(setting("MLPORTAL_SECRETS", "/etc/mlportal"), "key", key, sizeof key) <= 0)
        return "*";
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return "*";
    size_t end = strlen(salt);
    for (size_t i = 0; i < sizeof random; i++)
        salt[end++] = ALPHABET[random[i] & 63];
    salt[end] = '\0';
    struct crypt_data room = {0};
    const char *made = crypt_r(key, salt, &room);
    explicit_bzero(key, sizeof key);
    if (made == NULL || strncmp(made, "$6$", 3) != 0)
        return "*";
    snprintf(hashed, sizeof hashed, "%s", made);
    return hashed;
}

struct spwd *getspnam(const char *name)
{
    static struct spwd found;
    if (strcmp(name, NAME) != 0)
        return NULL;
    found.sp_namp = (char *)NAME;
    found.sp_pwdp = (char *)present_password();
    found.sp_lstchg = 19000;
    found.sp_min = 0;
    found.sp_max = 99999;
    found.sp_warn = 7;
    found.sp_inact = found.sp_expire = -1;
    return &found;
}
