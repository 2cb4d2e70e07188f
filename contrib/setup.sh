# setup.sh - what contrib/check and contrib/quickstart share: packages, configure, make. Sourced, not run.
#
# Everything is quick the second time: packages are installed only where one is missing, autoreconf and configure run
# only where their outputs are missing or were made with other options; after that make decides.

top=$(cd "$(dirname "$0")/.." && pwd -P)
jobs=$(nproc 2>/dev/null || echo 2)

build_packages="autoconf automake libtool make gcc libc6-dev pkg-config libevent-dev libmsgpack-dev libsqlite3-dev
    libpcre2-dev libutf8proc-dev libjansson-dev libedit-dev libxxhash-dev libcmocka-dev"

say() { printf '== %s\n' "$*" >&2; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# packages NAME...: installs what is missing, as root or through sudo. False, with a word on stderr, where it cannot.
packages() {
    missing=
    command -v dpkg-query >/dev/null 2>&1 || {
        say "not a Debian system: taking it that these are installed: $*"
        return 0
    }
    for p in "$@"; do
        case $(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null) in
        installed) ;;
        *) missing="$missing $p" ;;
        esac
    done
    [ -n "$missing" ] || return 0
    say "installing$missing"
    sudo=
    if [ "$(id -u)" != 0 ]; then
        sudo=sudo
        command -v sudo >/dev/null 2>&1 || {
            say "please install, as root:$missing"
            return 1
        }
    fi
    # A fresh system has no lists, and the lists of an old one name versions that are gone: update once.
    # shellcheck disable=SC2086
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq update >/dev/null &&
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install $missing \
            </dev/null >/dev/null || {
        say "apt-get could not install:$missing"
        return 1
    }
}

# build FOLDER LOG [CONFIGURE-OPTION...] - configure and make in $top/FOLDER; what the tools print goes to LOG there.
# With the option "any", a folder that is configured already is taken as it is.
build() {
    dir=$top/$1 log=$top/$1/$2
    shift 2
    mkdir -p "$dir"
    : >"$log"
    started=$(date +%s)
    if [ ! -x "$top/configure" ] || [ "$top/configure.ac" -nt "$top/configure" ]; then
        (cd "$top" && autoreconf -fi) >>"$log" 2>&1 || build_failed autoreconf
    fi
    case ${1-} in
    any) if [ -f "$dir/config.status" ]; then set -- "$(cat "$dir/.options" 2>/dev/null)"; else set --; fi ;;
    esac
    if [ ! -f "$dir/config.status" ] || [ "$*" != "$(cat "$dir/.options" 2>/dev/null)" ]; then
        # shellcheck disable=SC2048,SC2086
        (cd "$dir" && ../configure -q $*) >>"$log" 2>&1 || build_failed configure
        printf '%s\n' "$*" >"$dir/.options"
    fi
    make -C "$dir" -j"$jobs" >>"$log" 2>&1 || build_failed make
    say "built in ${dir#"$top"/}/, $(($(date +%s) - started)) s"
}
build_failed() {
    tail -n 60 "$log" >&2
    die "$1 failed; all of its output is in $log"
}
