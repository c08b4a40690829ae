# Process 1 of an engine's namespaces: sh enter.sh ROOT DIR GROUP COMMAND...
#
# ROOT, a root file system, is the lower directory of an overlay; all that the engine writes lies in
# memory and goes with the mount namespace. DIR/run becomes /run, so its sockets are seen from outside,
# DIR/files is copied over the root. GROUP is the name of a control group of the engine's own in
# each hierarchy. The command runs again whenever it ends, as a service of systemd does.
set -eu
root=$1 dir=$2 group=$3
groups=/sys/fs/cgroup
own_user=41000

# Version 1, perhaps with the second beside it, has a directory for each hierarchy.
hierarchies() {
    sed 's/^[0-9]*:\([^:]*\):.*/\1/' /proc/self/cgroup | while read -r names; do
        case $names in
            '') if [ -d $groups/unified ]; then echo unified; else echo .; fi ;;
            *) echo "${names#name=}" ;;
        esac
    done
}

if [ "${INSIDE:-}" != yes ]; then
    for hierarchy in $(hierarchies); do
        own=$groups/$hierarchy/$group
        [ -d "$groups/$hierarchy" ] || continue
        mkdir "$own"
        # A new group of cpuset has none of either and takes no process.
        for file in cpuset.cpus cpuset.mems; do
            [ "$hierarchy" = . ] || [ ! -f "$own/$file" ] || cat "$groups/$hierarchy/$file" > "$own/$file"
        done
        echo $$ > "$own/cgroup.procs"
    done
    INSIDE=yes exec unshare --cgroup sh "$0" "$@"
fi
shift 3

mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$dir/memory"
cd "$dir/memory"
mkdir upper work root data data/docker data/containers data/home
mount -t overlay -o "lowerdir=$root,upperdir=upper,workdir=work" overlay root
mkdir -p root/old root/var/lib/docker root/var/lib/containers root/home/engine
# An overlay cannot be the upper directory of another.
mount --bind data/docker root/var/lib/docker
mount --bind data/containers root/var/lib/containers
mount --bind data/home root/home/engine
mount -t proc proc root/proc
mount --rbind /sys root/sys
mount --rbind /dev root/dev
mount --bind "$dir/run" root/run
mount -t tmpfs tmpfs root/tmp
cat /etc/resolv.conf > root/etc/resolv.conf
cat /etc/hosts > root/etc/hosts
cat /etc/ssl/certs/ca-certificates.crt > root/etc/ssl/certs/ca-certificates.crt

# The engine sees its own group as the root of each hierarchy.
list=$(hierarchies)
umount -R root/sys/fs/cgroup
if [ "$list" = . ]; then
    mount -t cgroup2 cgroup root/sys/fs/cgroup
    # A group with processes has no groups with limits below it.
    mkdir root/sys/fs/cgroup/init
    echo $$ > root/sys/fs/cgroup/init/cgroup.procs
    for controller in $(cat root/sys/fs/cgroup/cgroup.controllers); do
        echo "+$controller" > root/sys/fs/cgroup/cgroup.subtree_control
    done
else
    mount -t tmpfs tmpfs root/sys/fs/cgroup
    for hierarchy in $list; do
        mkdir "root/sys/fs/cgroup/$hierarchy"
        case $hierarchy in
            unified) mount -t cgroup2 cgroup root/sys/fs/cgroup/unified ;;
            systemd) mount -t cgroup -o none,name=systemd cgroup root/sys/fs/cgroup/systemd ;;
            *) mount -t cgroup -o "$hierarchy" cgroup "root/sys/fs/cgroup/$hierarchy" ;;
        esac
    done
fi

# An ordinary user, with ids of its own for containers and the devices that rootless networks take.
echo "engine:x:$own_user:$own_user::/home/engine:/bin/sh" >> root/etc/passwd
echo "engine:x:$own_user:" >> root/etc/group
echo "engine:${own_user}00:65536" > root/etc/subuid
echo "engine:${own_user}00:65536" > root/etc/subgid
mkdir -p "root/run/user/$own_user"
chown "$own_user:$own_user" root/home/engine "root/run/user/$own_user"
for device in fuse:229 net/tun:200; do
    [ -e "/dev/${device%:*}" ] || continue
    mknod -m 666 "data/${device#*:}" c 10 "${device#*:}"
    mount --bind "data/${device#*:}" "root/dev/${device%:*}"
done

cp -a "$dir/files/." root/
cd root
pivot_root . old
umount -l /old
cd /
while :; do
    "$@" || echo "ended with $?"
    sleep 0.2
done
