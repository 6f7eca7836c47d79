"""Check digits of numbers that identify a person, an account or a card."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Final

_LETTERS_23: Final = "TRWAGMYFPDXBNJZSQVHLCKE"
_FINNISH: Final = "0123456789ABCDEFHJKLMNPRSTUVWXY"
_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BECH32: Final = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_BECH32_SUMS: Final = (1, 0x2BC830A3)
_GENERATORS: Final = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
# Verhoeff's scheme: multiplication in the dihedral group of order ten, and a permutation by place.
_DIHEDRAL: Final = (
    "0123456789", "1234067895", "2340178956", "3401289567", "4012395678",
    "5987604321", "6598710432", "7659821043", "8765932104", "9876543210",
)  # fmt: skip
_PERMUTED: Final = (
    "0123456789", "1576283094", "5803796142", "8916043527",
    "9453126870", "4286573901", "2793806415", "7046913258",
)  # fmt: skip
# Italy's values of characters at odd places.
_ITALIAN_ODD: Final = dict(
    zip(
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11,
         3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23),
        strict=True,
    )
)  # fmt: skip


def luhn(digits: str) -> bool:
    """Payment cards, Canada's and Sweden's numbers."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def iban(text: str) -> bool:
    """ISO 13616: the account's letters and digits as one number have remainder 1 modulo 97."""
    turned = text[4:] + text[:4]
    return int("".join(str(int(letter, 36)) for letter in turned)) % 97 == 1


def verhoeff(digits: str) -> bool:
    """India's Aadhaar."""
    check = 0
    for place, digit in enumerate(reversed(digits)):
        check = int(_DIHEDRAL[check][int(_PERMUTED[place % 8][int(digit)])])
    return check == 0


def weighted(digits: str, weights: Sequence[int], modulus: int) -> int:
    """The remainder of the digits' weighted sum; the weights repeat when they run out."""
    pairs = zip(digits, cycle(weights))
    return sum(int(digit) * weight for digit, weight in pairs) % modulus


def sums_up(*weights: int, modulus: int) -> Callable[[str], bool]:
    """A check that a number is not 0 and its weighted sum is divisible by the modulus."""
    return lambda digits: weighted(digits, weights, modulus) == 0 and int(digits) > 0


australian_tax = sums_up(1, 4, 3, 7, 5, 8, 6, 9, 10, modulus=11)
"""Australia's TFN, nine digits."""

dutch = sums_up(9, 8, 7, 6, 5, 4, 3, 2, -1, modulus=11)
"""The Netherlands' BSN, nine digits."""

swiss = sums_up(1, 3, modulus=10)
"""Switzerland's AHV number: thirteen digits as an EAN."""

american_routing = sums_up(3, 7, 1, modulus=10)
"""A bank's routing number in the USA, nine digits."""


def nhs(digits: str) -> bool:
    """England's health service number, ten digits."""
    check = 11 - weighted(digits[:9], range(10, 1, -1), 11)
    return check != 10 and check % 11 == int(digits[9])


def german_tax(digits: str) -> bool:
    """Germany's tax id: eleven digits, ISO 7064 mod 11,10, one digit two or three times."""
    counts = sorted((digits[:10].count(digit) for digit in set(digits[:10])), reverse=True)
    if digits[0] == "0" or counts[0] not in (2, 3) or (len(counts) > 1 and counts[1] > 1):
        return False
    product = 10
    for digit in digits[:10]:
        product = ((int(digit) + product) % 10 or 10) * 2 % 11
    return (11 - product) % 10 == int(digits[10])


def spanish(text: str) -> bool:
    """Spain's DNI and NIE: the last letter is computed from the number."""
    number = text[:-1].translate(str.maketrans("XYZ", "012"))
    return _LETTERS_23[int(number) % 23] == text[-1]


def italian(text: str) -> bool:
    """Italy's codice fiscale, sixteen characters."""
    odd = sum(_ITALIAN_ODD[letter] for letter in text[:15:2])
    even = sum(
        int(letter) if letter.isdigit() else ord(letter) - ord("A") for letter in text[1:15:2]
    )
    return chr(ord("A") + (odd + even) % 26) == text[15]


def french(text: str) -> bool:
    """France's NIR: thirteen characters, letters among them for Corsica, and a key."""
    number, less = text[:13], 0
    for letters, start in (("2A", 1_000_000), ("2B", 2_000_000)):
        if number[5:7] == letters:
            number, less = number[:6] + "0" + number[7:], start
    return number.isdigit() and 97 - (int(number) - less) % 97 == int(text[13:])


def australian_business(digits: str) -> bool:
    """Australia's ABN, eleven digits; personal because sole traders have one in their own name."""
    lessened = str(int(digits[0]) - 1) + digits[1:] if digits[0] != "0" else "0" * 11
    return digits[0] != "0" and weighted(lessened, (10, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19), 89) == 0


def polish(digits: str) -> bool:
    """Poland's PESEL, eleven digits with a date of birth."""
    dated = 1 <= int(digits[2:4]) % 20 <= 12 and 1 <= int(digits[4:6]) <= 31
    return dated and weighted(digits, (1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1), 10) == 0


def brazilian(digits: str) -> bool:
    """Brazil's CPF, eleven digits."""
    first = weighted(digits[:9], range(10, 1, -1), 11)
    second = weighted(digits[:10], range(11, 1, -1), 11)
    wanted = [0 if rest < 2 else 11 - rest for rest in (first, second)]
    return len(set(digits)) > 1 and wanted == [int(digits[9]), int(digits[10])]


def chinese(text: str) -> bool:
    """China's resident number, eighteen characters, ISO 7064 mod 11-2."""
    rest = sum(int(digit) * pow(2, 17 - place, 11) for place, digit in enumerate(text[:17])) % 11
    return "10X98765432"[rest] == text[17]


def finnish(text: str) -> bool:
    """Finland's personal code: date, sign, number and check character."""
    return _FINNISH[int(text[:6] + text[7:10]) % 31] == text[10]


def base58check(text: str) -> bool:
    """Addresses of Bitcoin and similar currencies."""
    number = 0
    for letter in text:
        value = _BASE58.find(letter)
        if value < 0:
            return False
        number = number * 58 + value
    if number.bit_length() > 200:
        return False
    raw = number.to_bytes(25, "big")
    return hashlib.sha256(hashlib.sha256(raw[:21]).digest()).digest()[:4] == raw[21:]


def bech32(text: str) -> bool:
    """Newer addresses of Bitcoin and similar currencies, in lower case."""
    prefix, mark, data = text.rpartition("1")
    if not mark or len(data) < 6 or any(letter not in _BECH32 for letter in data):
        return False
    values = [ord(letter) >> 5 for letter in prefix] + [0] + [ord(letter) & 31 for letter in prefix]
    check = 1
    for value in [*values, *(_BECH32.index(letter) for letter in data)]:
        top = check >> 25
        check = (check & 0x1FFFFFF) << 5 ^ value
        for bit, generator in enumerate(_GENERATORS):
            if top >> bit & 1:
                check ^= generator
    return check in _BECH32_SUMS
