# Validates the image from inside; the report goes into the image, and into the log where a
# failure would otherwise take it along.
directory=${0%/*}
mkdir -p /usr/share/stackforge
python "$directory/validate.py" --spec "$directory/spec.json" --out /usr/share/stackforge/validation.json
code=$?
if [ "$code" -ne 0 ] && [ -s /usr/share/stackforge/validation.json ]; then
    printf 'stackforge-report '
    tr -d '\n' < /usr/share/stackforge/validation.json
    echo
fi
exit "$code"
