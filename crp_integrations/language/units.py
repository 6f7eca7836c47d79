"""Units of measure: canonical names, and factors to one base unit per dimension."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal, localcontext

# Values must not depend on the decimal context that a caller has set.
CONTEXT = Context(prec=28)


@dataclass(frozen=True, slots=True)
class MeasureUnit:
    """A unit of measure.

    Attributes:
        name: canonical symbol.
        dimension: what it measures; only units of one dimension can be compared.
        factor, offset: base value = value * factor + offset.
    """

    name: str
    dimension: str
    factor: Decimal
    offset: Decimal = Decimal(0)


_ROWS = """
length m 1 m metre metres meter meters
length km 1000 km kilometre kilometres kilometer kilometers kms
length cm 0.01 cm centimetre centimetres centimeter centimeters
length mm 0.001 mm millimetre millimetres millimeter millimeters
length um 0.000001 um \u00b5m \u03bcm micrometre micrometres micrometer micrometers micron microns
length nm 0.000000001 nm nanometre nanometres nanometer nanometers
length mi 1609.344 mi mile miles
length yd 0.9144 yd yds yard yards
length ft 0.3048 ft foot feet
length in 0.0254 inch inches
length nmi 1852 nmi
mass g 1 g gram grams gramme grammes
mass kg 1000 kg kgs kilogram kilograms kilogramme kilogrammes kilo kilos
mass mg 0.001 mg milligram milligrams
mass ug 0.000001 ug mcg \u00b5g \u03bcg microgram micrograms
mass t 1000000 t tonne tonnes
mass ton 907184.74 ton tons
mass lb 453.59237 lb lbs pound pounds
mass oz 28.349523125 oz ounce ounces
time s 1 s sec secs second seconds
time ms 0.001 ms millisecond milliseconds
time us 0.000001 us \u00b5s \u03bcs microsecond microseconds
time ns 0.000000001 ns nanosecond nanoseconds
time min 60 min mins minute minutes
time h 3600 h hr hrs hour hours
time d 86400 day days
time wk 604800 week weeks
time fortnight 1209600 fortnight fortnights
span mo 1 month months
span quarter 3 quarters
span y 12 year years yr yrs
span decade 120 decade decades
span century 1200 century centuries
data B 1 bytes byte
data KB 1000 kb kilobyte kilobytes
data MB 1000000 mb megabyte megabytes
data GB 1000000000 gb gigabyte gigabytes
data TB 1000000000000 tb terabyte terabytes
data PB 1000000000000000 pb petabyte petabytes
data KiB 1024 kib kibibyte kibibytes
data MiB 1048576 mib mebibyte mebibytes
data GiB 1073741824 gib gibibyte gibibytes
data bit 0.125 bit bits
rate kbps 1000 kbps kbit/s
rate Mbps 1000000 mbps mbit/s
rate Gbps 1000000000 gbps gbit/s
speed m/s 1 m/s
speed km/h 0.2777777777777777777777777778 km/h kph kmh
speed mph 0.44704 mph
volume l 1 l litre litres liter liters
volume ml 0.001 ml millilitre millilitres milliliter milliliters
volume gal 3.785411784 gal gallon gallons
volume bbl 158.987294928 bbl barrel barrels
area m2 1 m2 m\u00b2 sqm
area km2 1000000 km2 km\u00b2
area ha 10000 ha hectare hectares
area acre 4046.8564224 acre acres
area ft2 0.09290304 ft2 ft\u00b2 sqft
power W 1 w watt watts
power kW 1000 kw kilowatt kilowatts
power MW 1000000 mw megawatt megawatts
power GW 1000000000 gw gigawatt gigawatts
energy J 1 j joule joules
energy kJ 1000 kj kilojoule kilojoules
energy Wh 3600 wh watt-hour watt-hours
energy kWh 3600000 kwh kilowatt-hour kilowatt-hours
energy MWh 3600000000 mwh megawatt-hour megawatt-hours
energy GWh 3600000000000 gwh gigawatt-hour gigawatt-hours
energy cal 4.184 cal calorie calories
energy kcal 4184 kcal kilocalorie kilocalories
frequency Hz 1 hz hertz
frequency kHz 1000 khz kilohertz
frequency MHz 1000000 mhz megahertz
frequency GHz 1000000000 ghz gigahertz
pressure Pa 1 pa pascal pascals
pressure kPa 1000 kpa kilopascal kilopascals
pressure bar 100000 bars
pressure psi 6894.757293168 psi
voltage V 1 v volt volts
voltage kV 1000 kv kilovolt kilovolts
current A 1 amp amps ampere amperes
"""


def _table() -> dict[str, MeasureUnit]:
    table: dict[str, MeasureUnit] = {}
    for row in _ROWS.strip().splitlines():
        dimension, name, factor, *spellings = row.split()
        unit = MeasureUnit(name, dimension, Decimal(factor))
        for spelling in spellings:
            table[spelling] = unit
    celsius = MeasureUnit("\u00b0C", "temperature", Decimal(1))
    scale = Decimal(5) / Decimal(9)
    fahrenheit = MeasureUnit("\u00b0F", "temperature", scale, -32 * scale)
    table |= dict.fromkeys(("\u00b0c", "celsius", "degrees celsius", "degree celsius"), celsius)
    table |= dict.fromkeys(
        ("\u00b0f", "fahrenheit", "degrees fahrenheit", "degree fahrenheit"), fahrenheit
    )
    table["kelvin"] = MeasureUnit("K", "temperature", Decimal(1), Decimal("-273.15"))
    table["nautical miles"] = table["nautical mile"] = table["nmi"]
    table["metric tons"] = table["metric ton"] = table["tonne"]
    for short, long in (("m2", "metre"), ("km2", "kilometre"), ("ft2", "feet")):
        for form in (long, long + "s", long.replace("tre", "ter"), long.replace("tre", "ters")):
            table[f"square {form}"] = table[short]
    table["square foot"] = table["ft2"]
    mile = MeasureUnit("mi2", "area", Decimal("2589988.110336"))
    table["square mile"] = table["square miles"] = mile
    table["kilometres per hour"] = table["kilometers per hour"] = table["km/h"]
    table["miles per hour"] = table["mph"]
    return table


SPELLINGS: dict[str, MeasureUnit] = _table()
UNITS: dict[str, MeasureUnit] = {unit.name: unit for unit in SPELLINGS.values()}


def unit_of(spelling: str) -> MeasureUnit | None:
    """The unit that a spelling stands for, None when it is no unit of the table.

    >>> unit_of("kilometres").name
    'km'
    """
    return SPELLINGS.get(spelling.casefold())


def to_base(value: Decimal, unit: str) -> tuple[Decimal, str]:
    """A value in the base unit of its dimension, and the dimension.

    Args:
        value: a number in the unit.
        unit: a canonical unit name, or anything else (returned unchanged).

    >>> to_base(Decimal(2), "km")
    (Decimal('2000'), 'length')
    """
    known = UNITS.get(unit)
    if known is None:
        return value, unit
    with localcontext(CONTEXT):
        return value * known.factor + known.offset, known.dimension
