# A source from git, with its submodules, into /opt/source. A clone runs no code of the repository:
# there are no hooks, filters or templates, and only the network's transports are followed.
set -eu
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
. /dev/stackforge/steps/net.sh
read -r url revision < /dev/stackforge/build/git.txt
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 GIT_LFS_SKIP_SMUDGE=1 GIT_ALLOW_PROTOCOL=https:http:ssh:git
git() {
    /usr/bin/git -c core.hooksPath=/dev/null -c init.templateDir= "$@"
}
mkdir -p /opt/source
git clone --quiet --no-checkout -- "$url" /opt/source/git
git -C /opt/source/git checkout --quiet --detach "$revision"
git -C /opt/source/git submodule --quiet update --init --recursive
