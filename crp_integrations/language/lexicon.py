"""Closed lists of English words that the rules of this room share."""

from __future__ import annotations

# Verbs by their base form; with the rules of `verbs.py` they show where a clause is finite.
VERBS: frozenset[str] = frozenset(
    """accept account achieve acquire act add address adopt affect aim allow announce appear
    apply appoint approve argue arrive ask assess assign assume attract authorise authorize
    avoid ban base become begin believe belong benefit bind block break bring build buy
    calculate call carry cause cease change charge check choose claim close collect combine
    come compare compete complete comply compose comprise compute conclude conduct confirm
    connect consider consist contain continue contract contribute control convert cost count
    cover create cut deal decide decline decrease define delay deliver demand deny depend
    describe deserve design destroy detect determine develop differ direct discover discuss
    disrupt distribute divide double draw drive drop earn elect eliminate emerge employ
    enable end enforce ensure enter establish estimate exceed exclude exist expand expect
    expire explain export express extend face fail fall feature fight file fill find finish
    fit fix focus follow forbid force form found fund gain generate get give go govern grant
    grow guarantee handle happen have head help hire hit hold host identify impact implement
    imply import impose improve include increase indicate inform inspect install integrate
    introduce invest involve issue join jump keep kill know lack last launch lead learn
    leave lie limit link list live locate look lose lower maintain make manage manufacture
    market mean measure meet merge move name need note notify obtain occur offer open
    operate oppose order organise organize own participate pass pay perform permit place
    plan play possess prefer prepare present prevent process produce prohibit promote
    propose protect prove provide publish purchase put raise range rank reach read receive
    recognise recognize recommend record recover reduce refer reflect refuse register reject
    release rely remain remove rent replace report represent require reside resolve respond
    restrict result retain return reveal review rise run save say score secure see seek seem
    sell send separate serve set settle shift show shrink sign sit solve specify spend split
    stand start state stay stop store strengthen study submit succeed suffer suggest supply
    support surge survive take target teach tell tend test thrive total trade train transfer
    travel treat trigger turn undergo understand update use validate value vary verify view
    violate visit vote want warn weigh win work write yield""".split()
)

# Irregular past forms and the verbs that they belong to.
PAST_OF: dict[str, str] = dict(
    pair.split("/")
    for pair in """arose/arise
    became/become began/begin begun/begin bound/bind bought/buy broke/break
    broken/break brought/bring built/build came/come caught/catch chose/choose chosen/choose
    dealt/deal did/do done/do drew/draw drawn/draw drove/drive driven/drive dug/dig fed/feed
    fell/fall fallen/fall felt/feel fled/flee flew/fly flown/fly fought/fight forbade/forbid
    forbidden/forbid forgot/forget forgotten/forget found/find froze/freeze frozen/freeze
    gave/give given/give got/get grew/grow grown/grow heard/hear held/hold hid/hide
    hung/hang kept/keep knew/know known/know laid/lay led/lead left/leave lent/lend
    lit/light lost/lose made/make meant/mean met/meet overcame/overcome paid/pay ran/run
    rang/ring rode/ride rose/rise risen/rise said/say sang/sing sank/sink sat/sit saw/see
    seen/see sent/send shook/shake shot/shoot showed/show shown/show shrank/shrink
    shrunk/shrink slid/slide sold/sell sought/seek spent/spend spoke/speak spoken/speak
    stood/stand stole/steal stolen/steal struck/strike swam/swim swore/swear sworn/swear
    swung/swing taught/teach thought/think threw/throw thrown/throw told/tell took/take
    taken/take tore/tear torn/tear understood/understand undertook/undertake
    undertaken/undertake went/go gone/go withdrew/withdraw withdrawn/withdraw woke/wake
    won/win wore/wear worn/wear wrote/write written/write""".split()
)
_PARTICIPLES = frozenset(
    """begun broken chosen done drawn driven fallen flown forbidden forgotten frozen given grown
    known     risen seen shown shrunk spoken stolen sworn taken thrown torn undertaken gone
    withdrawn worn
    written""".split()
)
# Past forms that make a clause finite by themselves.
IRREGULAR: frozenset[str] = (frozenset(PAST_OF) - _PARTICIPLES) | frozenset(
    "cost cut hit hurt let put quit read set shut split spread had lay".split()
)

AUXILIARIES: frozenset[str] = frozenset(
    """is are was were am be been has have had do does did will would can could may might must
    shall should cannot ain't isn't aren't wasn't weren't hasn't haven't hadn't doesn't
    don't didn't won't wouldn't can't couldn't mustn't shouldn't mightn't needn't it's
    that's there's he's she's they're we're you're i'm they've we've i've you've they'll
    we'll""".split()
)

DETERMINERS: frozenset[str] = frozenset(
    """a an the this that these those its his her their our my your each every some any no all both
    another either neither such""".split()
)

PREPOSITIONS: frozenset[str] = frozenset(
    """of in on at by for from with to into onto over under about against between among during
    through across per via within without than as like toward towards upon""".split()
)

PRONOUNS: frozenset[str] = frozenset(
    "i you he she it we they this that these those who which there one someone everyone".split()
)

# Words that open sentences with a capital and are no names.
ORDINARY: frozenset[str] = frozenset(
    """according although additionally after all almost alternatively also among analysis
    another any anyone article authors average because before besides better both business
    businesses but candidates care cases certain changes check children choose cities
    citizens click clinical common companies company compared competition compliance
    consequently consider consumers context conversely cost costs countries create critics
    currently customers data day days death debt demand despite details developers
    developing documents due each early economic education either employees energy engineers
    errors even eventually every everyone everything evidence example examples experts facts
    families farmers features few final finally financial first firms five following food
    for former four frequently full fully further furthermore future general generally given
    global good government governments great half health hence here high higher historically
    history hospitals how however humans if imagine important in income increased indeed
    industry inflation information initially instead interest investors issues it its job
    jobs just key lack large last late later law laws learning leaders less life like
    likewise local long loss losses low lower major making man management many market
    markets may maybe mean meanwhile measures medical members men methods military millions
    models modern money more moreover most much national natural nearly neither never
    nevertheless new next nine nobody none nonetheless not note nothing notably now
    obviously officials often oil old once one only open operations options order orders
    organisations organizations originally other others otherwise our overall owners parents
    part participants parties partly patients people perhaps personal plans please points
    police policy policies political poor population possible power previous previously
    price prices private production products profit profits programs projects public quality
    questions quite rain rates rather real recent recently record records reports research
    researchers residents results revenue revenues risk risks rules sadly safety sales
    scientists second section security several she shares short should similar similarly
    simply since six small so social software some someone something sometimes soon source
    sources special specifically staff state states still stock stocks students studies
    study subsequently such summary support supposedly sure surprisingly systems tax taxes
    teachers team teams ten that the their then there therefore these they things third this
    those though thousands three thus time times today together tomorrow tools total trade
    traffic training two typically ultimately under unemployment unfortunately unlike until
    up upon users usually various very victims visitors voters wages war water we weather
    what when where whether which while who why will with within without witnesses women
    work workers writing yes yesterday yet you young your answer answers text reason reasons
    regardless response responses conclusion introduction background overview warning
    caution tip step steps input output approximately nearly roughly about around over model
    applications application system service services process access payment payments
    delivery shipping growth turnover margins earnings exports imports output spending
    investment funding membership attendance enrolment treatment surgery symptoms
    vaccination doctors nurses drivers passengers tourists trains buses roads buildings
    houses schools universities libraries museums parks rivers lakes mountains forests
    animals plants birds fish dogs cats trees flowers crops temperatures emissions pollution
    deforestation erosion flooding earthquakes storms fires responsibility regulation
    regulations controllers processors providers operators manufacturers suppliers vendors
    retailers banks lenders borrowers creditors shareholders directors executives managers
    analysts economists applicants recipients beneficiaries taxpayers landlords tenants
    buyers sellers customer reviewer user patient member visitor guest employee consumer
    reviewers guests""".split()
)

HONORIFICS: frozenset[str] = frozenset(
    """mr mrs ms miss dr prof professor sir dame lord lady rev hon sen gov capt col gen
    lt sgt""".split()
)

# Verbs that open an instruction.
IMPERATIVES: frozenset[str] = frozenset(
    """add adjust apply attach back boil build call change check choose clean click clone close
    combine compile complete configure confirm connect contact copy create cut delete deploy
    disable disconnect double-click download drag drain edit enable enter execute export
    fill follow go heat hold import insert install keep launch log make mix move navigate
    open paste place plug pour press print pull push put read reboot remove rename repeat
    replace reset restart return right-click rinse run save scroll select send set shut sign
    specify start stir stop submit switch tap test tick toggle try turn type uninstall
    unplug update upgrade upload use verify visit wait wash write divide twist wrap swap brush
    gather split secure continue begin fold tie braid slice chop peel season sprinkle serve preheat
    whisk roll knead spread cover loosen tighten lift lay dry soak trim sew glue consult ensure
    avoid make""".split()
)
