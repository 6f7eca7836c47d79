"""Loaders: read files and folders and return documents.

A loader takes a path and returns `Document` records whose blocks are paragraphs with page, headings
and character offsets. Text is changed only where a format demands it: line ends become line
feeds, and HTML markup and the line breaks of PDF are removed. Offsets count characters of the
resulting text.

Read `files` (which files, bytes to text) and `documents` (which loader), then one module per
format: `text` (also Markdown and front matter), `html`, `pdf`, `jsonl`.

Loaders never write anything, never follow a link out of the given folder, and never guess an
encoding.
"""
