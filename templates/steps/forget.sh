# Sourced after an installation: uv notes when it cached a file, which would make every image
# differ, and leaves its lock.
rm -f /opt/venv/.lock
for note in /opt/venv/lib/python*/site-packages/*.dist-info/uv_cache.json; do
    [ -e "$note" ] || continue
    sed -i '/uv_cache\.json,/d' "${note%/*}/RECORD"
    rm "$note"
done
