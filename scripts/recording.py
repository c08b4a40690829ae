#!/usr/bin/env python3
"""Records commands on a terminal as an SVG that plays by itself.

    scripts/recording.py OUTPUT.svg [--folder DIR] COMMAND...

Each COMMAND is typed and run in DIR; what the program really prints is shown, with pauses cut to a second. Needs pyte
(`pip install pyte`), which reads the terminal's codes.
"""
import argparse
import fcntl
import html
import os
import pty
import select
import struct
import sys
import termios
import time

import pyte

COLUMNS, ROWS = 100, 30
# Pixels: width of a column, height of a row, edge.
WIDTH, HEIGHT, EDGE = 8.4, 18, 14
# Seconds: the longest pause that is kept, and the time between two pictures of a running program.
PAUSE, SOONEST = 1.0, 0.4
# How long the last picture stays.
END = 4.0
COLORS = {"red": "#ff7b72", "green": "#7ee787", "brown": "#e3b341", "blue": "#79c0ff", "magenta": "#d2a8ff",
          "cyan": "#76e3ea", "white": "#c9d1d9", "black": "#8b949e"}


def rows_of(screen):
    """The screen as rows of runs: (column, text, colour, bold)."""
    rows = []
    for y in range(ROWS):
        line, runs = screen.buffer[y], []
        for x in range(COLUMNS):
            cell = line[x]
            look = (cell.fg, cell.bold)
            if runs and runs[-1][2:] == look and runs[-1][0] + len(runs[-1][1]) == x:
                runs[-1] = (runs[-1][0], runs[-1][1] + cell.data) + look
            else:
                runs.append((x, cell.data) + look)
        rows.append(tuple((x, text.rstrip(), fg, bold) for x, text, fg, bold in runs if text.strip()))
    return tuple(rows)


class Recording:
    def __init__(self):
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self.stream = pyte.ByteStream(self.screen)
        self.frames = []
        self.at = self.taken = 0.0

    def show(self, passed):
        """Notes what the screen shows, after so many seconds since the last time."""
        self.at += min(passed, PAUSE)
        if self.frames and self.at - self.taken < SOONEST:
            return
        rows = rows_of(self.screen)
        if not self.frames or self.frames[-1][1] != rows:
            self.frames.append((self.at, rows))
        self.taken = self.at

    def type(self, command):
        self.stream.feed(b"$ ")
        for letter in command:
            self.stream.feed(letter.encode())
            self.at += 0.03
            self.taken = 0.0
            self.show(0.0)
        self.taken = 0.0
        self.show(0.4)
        self.stream.feed(b"\r\n")

    def run(self, command, folder):
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(folder)
            os.environ["TERM"] = "xterm-256color"
            os.execvp("sh", ["sh", "-c", command])
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        last = time.monotonic()
        while True:
            ready, _, _ = select.select([terminal], [], [], 0.1)
            if ready:
                try:
                    piece = os.read(terminal, 65536)
                except OSError:
                    break
                if not piece:
                    break
                self.stream.feed(piece)
            now = time.monotonic()
            self.show(now - last)
            last = now
        os.waitpid(pid, 0)
        self.taken = 0.0
        self.show(PAUSE)

    def svg(self):
        total = self.at + END
        used = max(y + 1 for _, rows in self.frames for y in range(ROWS) if rows[y])
        width, height = COLUMNS * WIDTH + 2 * EDGE, used * HEIGHT + 2 * EDGE
        style = ["text{white-space:pre;fill:#c9d1d9}.b{font-weight:bold}g{visibility:hidden}"]
        style += [f".{name}{{fill:{value}}}" for name, value in COLORS.items()]
        body = []
        for y in range(used):
            for start, end, runs in self.spans(y, total):
                name = f"r{len(body)}"
                first, last = 100 * start / total, 100 * end / total
                before = f"0%{{visibility:hidden}}{first:.2f}%" if first > 0 else "0%"
                after = f"{last:.2f}%,100%{{visibility:hidden}}" if last < 100 else ""
                style.append(f"@keyframes {name}{{{before}{{visibility:visible}}{after}}}"
                             f"#{name}{{animation:{name} {total:.1f}s step-end infinite}}")
                if last >= 100:
                    # Who wants no movement sees the end.
                    style.append(f"@media (prefers-reduced-motion:reduce){{#{name}{{animation:none;visibility:visible}}}}")
                texts = "".join(self.text(x, y, *run) for x, *run in runs)
                body.append(f'<g id="{name}">{texts}</g>')
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
                'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="14">')
        back = '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>'
        return "\n".join([head, "<style>", *style, "</style>", back, *body, "</svg>", ""])

    def spans(self, y, total):
        """What row y shows, with the seconds from and to which it does."""
        changes = []
        for at, rows in self.frames:
            if not changes or changes[-1][1] != rows[y]:
                changes.append((at, rows[y]))
        ends = [at for at, _ in changes[1:]] + [total]
        return [(at, end, runs) for (at, runs), end in zip(changes, ends) if runs]

    @staticmethod
    def text(x, y, text, fg, bold):
        look = " ".join(([fg] if fg in COLORS else []) + (["b"] if bold else []))
        return (f'<text x="{EDGE + x * WIDTH:.0f}" y="{EDGE + y * HEIGHT + 13}" textLength="{len(text) * WIDTH:.0f}"'
                + (f' class="{look}"' if look else "") + f">{html.escape(text)}</text>")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output")
    parser.add_argument("--folder", default=".")
    parser.add_argument("commands", nargs="+")
    arguments = parser.parse_args()
    recording = Recording()
    for command in arguments.commands:
        recording.type(command)
        recording.run(command, arguments.folder)
    with open(arguments.output, "w") as file:
        file.write(recording.svg())
    print(f"{arguments.output}: {len(recording.frames)} pictures, {recording.at:.0f} s", file=sys.stderr)


main()
