"""The rules of the house: floors, a light front door, records, examples, pages."""
