# The Python environment (PEP 405), without pip. stackforge's own engine makes the same.
set -eu
home=/opt/venv
mkdir -p "$home/bin" "$home/lib/python$1/site-packages"
ln -s "/usr/bin/python$1" "$home/bin/python"
ln -s python "$home/bin/python3"
ln -s python "$home/bin/python$1"
ln -s lib "$home/lib64"
printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = %s\n' "$1" > "$home/pyvenv.cfg"
