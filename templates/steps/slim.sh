# What only compilers read does not stay in the image: NVIDIA's runtime wheels carry static
# libraries. Builder stages start earlier and still have them.
set -eu
for library in $(find /opt/venv/lib -path '*/site-packages/nvidia/*' -name 'lib*.a'); do
    rm "$library"
    name=${library#/opt/venv/lib/python*/site-packages/}
    for record in /opt/venv/lib/python*/site-packages/nvidia_*.dist-info/RECORD; do
        sed -i "\\|^$name,|d" "$record"
    done
done
