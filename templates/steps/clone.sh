# A source from git, and repositories that its build would clone by itself, with their submodules, into
# /opt/source: a line of git.txt is an address, a commit and a folder. A clone runs no code of the
# repository: there are no hooks, filters or templates, and only the network's transports are followed.
set -eu
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
. /dev/stackforge/steps/net.sh
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 GIT_LFS_SKIP_SMUDGE=1 GIT_ALLOW_PROTOCOL=https:http:ssh:git
git() {
    /usr/bin/git -c core.hooksPath=/dev/null -c init.templateDir= "$@"
}
mkdir -p /opt/source/fetched
while read -r url revision folder; do
    at=/opt/source/$folder
    git clone --quiet --no-checkout -- "$url" "$at"
    git -C "$at" checkout --quiet --detach "$revision"
    git -C "$at" submodule --quiet update --init --recursive
done < /dev/stackforge/build/git.txt
