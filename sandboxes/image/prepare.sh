#!/bin/sh
# What both builders do once the packages are in. Runs inside the new root file system, as root. Running it again
# changes nothing.
set -eu
id=1000

# The user. Whoever had this id or this name gives way, so that every base ends up the same.
sed -i -E -e '/^user:/d' -e "/^[^:]*:[^:]*:$id:/d" /etc/passwd
sed -i -E -e '/^user:/d' -e "/^[^:]*:[^:]*:$id:/d" /etc/group
echo "user:x:$id:$id:user:/workspace:/bin/bash" >>/etc/passwd
echo "user:x:$id:" >>/etc/group
mkdir -p /workspace
chown $id:$id /workspace
chmod 755 /workspace
# Tasks may name a workspace below it, such as /root/.openclaw/workspace.
rm -f /root/.bashrc /root/.profile
chmod 711 /root

command -v python >/dev/null || ln -s python3 /usr/bin/python

# Compiled modules: /usr is read-only in a sandbox, so what is missing here is compiled again at every start of Python.
# Some bases come without.
for python in /usr/bin/python3 /usr/local/bin/python3; do
    [ -x "$python" ] || continue
    library=$("$python" -I -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
    "$python" -I -m compileall -q -x '/(tests?|idlelib|lib2to3|ensurepip|site-packages|dist-packages)/' "$library"
done

# Nothing in a sandbox may change its user.
find / -xdev -type f -perm /6000 -exec chmod a-s {} +

rm -rf /var/cache/apt/* /var/lib/apt/lists/* /var/log/* /var/cache/debconf/*-old /var/lib/dpkg/*-old
rm -rf /usr/share/doc/* /usr/share/man/* /usr/share/info/* /usr/share/locale/* /usr/share/lintian
