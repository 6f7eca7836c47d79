"""A PDF written by hand: pages of lines in Helvetica, nothing else."""

from __future__ import annotations


def pdf(pages: list[list[str]], *, title: str = "") -> bytes:
    """The bytes of a PDF with one line of text below the other on each page."""
    objects: list[bytes] = []

    def add(body: str | bytes) -> int:
        objects.append(body.encode("latin-1") if isinstance(body, str) else body)
        return len(objects)

    font = add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    kids = []
    tree = 2 * len(pages) + 2
    for lines in pages:
        drawn = ["BT /F1 11 Tf 14 TL 50 780 Td"]
        for line in lines:
            escaped = line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
            drawn.append(f"({escaped}) Tj T*")
        stream = "\n".join([*drawn, "ET"]).encode("cp1252")
        content = add(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
        kids.append(
            add(
                f"<< /Type /Page /Parent {tree} 0 R /MediaBox [0 0 595 842] "
                f"/Contents {content} 0 R /Resources << /Font << /F1 {font} 0 R >> >> >>"
            )
        )
    listed = " ".join(f"{kid} 0 R" for kid in kids)
    assert add(f"<< /Type /Pages /Kids [{listed}] /Count {len(kids)} >>") == tree
    catalog = add(f"<< /Type /Catalog /Pages {tree} 0 R >>")
    info = add(f"<< /Title ({title}) >>")
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<< /Size %d /Root %d 0 R /Info %d 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (
        len(objects) + 1,
        catalog,
        info,
        start,
    )
    return bytes(out)
