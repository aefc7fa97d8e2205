//! The patterns that are counted, and the replacement for each.

/// One column of the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pattern {
    /// `what` and `whatever`, in questions as well: the rule is simple.
    What,
    /// Forms of `say` and `tell`.
    Said,
    /// `who`, `whom`, `whose` and `whoever`.
    Who,
    /// `nobody` and `nowhere`.
    Nobody,
    /// `stands`, `of its own`, `beside`, `so many`, `anew`, `but for`.
    Idiom,
    /// A doc comment that begins with a question word; `whether` is no such word.
    Question,
    /// A type with a name without a noun.
    TypeName,
    /// A test with a name of more than [`TEST_NAME_MAX`] letters.
    TestName,
    /// A sentence of a page with more than [`SENTENCE_MAX`] words.
    Sentence,
    /// The median length of the names of all tests, if it is above [`TEST_MEDIAN_GOOD`].
    TestMedian,
    /// The average words in a sentence of a page, rounded up, if it is above [`AVERAGE_GOOD`].
    SentenceAverage,
}

impl Pattern {
    pub(super) const ALL: [Self; 11] = [
        Self::What,
        Self::Said,
        Self::Who,
        Self::Nobody,
        Self::Idiom,
        Self::Question,
        Self::TypeName,
        Self::TestName,
        Self::Sentence,
        Self::TestMedian,
        Self::SentenceAverage,
    ];

    /// The key in the file of budgets.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::What => "what",
            Self::Said => "said",
            Self::Who => "who",
            Self::Nobody => "nobody",
            Self::Idiom => "idiom",
            Self::Question => "question",
            Self::TypeName => "type_name",
            Self::TestName => "test_name",
            Self::Sentence => "sentence",
            Self::TestMedian => "test_median",
            Self::SentenceAverage => "sentence_average",
        }
    }

    /// Whether it is a measure of a whole row, which has no sum over rows.
    pub(super) fn is_average(self) -> bool {
        matches!(self, Self::TestMedian | Self::SentenceAverage)
    }

    /// The plain replacement for `words`.
    pub(super) fn replacement(self, words: &str) -> &'static str {
        match self {
            Self::What => "name the thing: \"the certificates that are served\"",
            Self::Said => "use log, report, print, return, send, set or describe",
            Self::Who => "name the actor: the client, the backend, the operator, the process",
            Self::Nobody => "name the missing thing: \"no client\", unknown, missing, unused",
            Self::Idiom => match words {
                "anew" => "again",
                "beside" => "besides, next to, or with",
                "but for" => "except",
                "so many" => "name the number, or \"for each\"",
                "stands" => "is",
                _ => "separate, or nothing: \"its socket\"",
            },
            Self::Question => "begin with a noun or a verb: The ..., Returns ..., Whether ...",
            Self::TypeName => "name the type with a noun: ConfigRevision, not Given",
            Self::TestName => "subject_condition_result, at most 45 letters",
            Self::Sentence => "split it: one fact, at most 25 words",
            Self::TestMedian => "shorten this name: subject_condition_result",
            Self::SentenceAverage => "split this sentence: one fact, at most 25 words",
        }
    }
}

/// The pattern that `words` begin with, and the count of its words.
pub(super) fn at_front(words: &[(usize, &str)]) -> Option<(Pattern, usize)> {
    let word = |i: usize| words.get(i).map_or("", |(_, word)| *word);
    let pattern = match word(0) {
        "what" | "whatever" => Pattern::What,
        "said" | "say" | "saying" | "says" | "tell" | "telling" | "tells" | "told" => Pattern::Said,
        "who" | "whoever" | "whom" | "whomever" | "whose" => Pattern::Who,
        "nobody" | "nowhere" => Pattern::Nobody,
        "anew" | "beside" | "stands" => Pattern::Idiom,
        "but" if word(1) == "for" => return Some((Pattern::Idiom, 2)),
        "so" if word(1) == "many" => return Some((Pattern::Idiom, 2)),
        "of" if matches!(word(1), "its" | "their") && word(2) == "own" => {
            return Some((Pattern::Idiom, 3));
        }
        _ => return None,
    };
    Some((pattern, 1))
}

pub(super) fn is_question_word(word: &str) -> bool {
    QUESTION_WORDS.contains(&word)
}

/// Whether each word of a type's name is a participle, an adverb, a pronoun or a preposition.
pub(super) fn has_no_noun(name: &str) -> bool {
    let starts = name.char_indices().filter(|(_, c)| c.is_uppercase()).map(|(at, _)| at);
    let starts: Vec<usize> = starts.collect();
    let ends = starts.iter().skip(1).copied().chain([name.len()]);
    let mut words = starts.iter().zip(ends).map(|(start, end)| &name[*start..end]);
    name == "UnderWay" || (!starts.is_empty() && words.all(is_no_noun))
}

fn is_no_noun(word: &str) -> bool {
    let is_participle = word.len() > 4 && (word.ends_with("ed") || word.ends_with("ing"));
    NO_NOUNS.contains(&word) || (is_participle && !NOUNS.contains(&word))
}

pub(super) const TEST_NAME_MAX: usize = 45;
pub(super) const TEST_MEDIAN_GOOD: usize = 32;
pub(super) const SENTENCE_MAX: usize = 25;
pub(super) const AVERAGE_GOOD: usize = 24;

const QUESTION_WORDS: [&str; 13] = [
    "how", "what", "whatever", "when", "whenever", "where", "wherever", "which", "who", "whoever",
    "whom", "whose", "why",
];

/// Irregular participles, adverbs, pronouns and prepositions.
const NO_NOUNS: [&str; 67] = [
    "Again", "Alone", "Anybody", "Anyone", "At", "Away", "Begun", "Broken", "Built", "By", "Came",
    "Chosen", "Done", "Drawn", "Due", "Early", "Either", "Fed", "For", "Found", "From", "Given",
    "Gone", "Got", "Grown", "Heard", "Held", "Here", "In", "Inside", "Itself", "Kept", "Known",
    "Late", "Led", "Left", "Lent", "Lost", "Made", "Many", "May", "Nobody", "Not", "Of", "Off",
    "One", "Or", "Out", "Over", "Own", "Ran", "Said", "Seen", "Seldom", "Sent", "Shown", "Spent",
    "Spoken", "Still", "Taken", "Then", "There", "Told", "Until", "Up", "Whatever", "Written",
];

/// Nouns that look like participles.
const NOUNS: [&str; 24] = [
    "Binding", "Drawing", "Embed", "Encoding", "Finding", "Framing", "Listing", "Mapping",
    "Meeting", "Need", "Opening", "Parsing", "Rating", "Reading", "Routing", "Setting", "Sharing",
    "Speed", "Spring", "Steering", "String", "Timing", "Tuning", "Warning",
];
