import Schedules
import Testing

@Suite struct CronExpressionTests {
    /// What may be written, and how it is written canonically.
    static let good: [(String, String)] = [
        ("* * * * *", "* * * * *"),
        ("0 3 * * *", "0 3 * * *"),
        ("  0\t3 *  * *\t", "0 3 * * *"),
        ("*/5 * * * *", "*/5 * * * *"),
        ("*/1 */1 */1 */1 */1", "* * * * *"),
        ("*/59 */23 */31 */12 */7", "*/59 */23 */31 */12 */7"),
        ("*/40 * * * *", "*/40 * * * *"),
        ("1-30/7 * * * *", "1-29/7 * * * *"),
        ("1-3/2 * * * *", "1,3 * * * *"),
        ("0,15,30,45 * * * *", "0-45/15 * * * *"),
        ("0,20,40 * * * *", "0,20,40 * * * *"),
        ("0-59 0-23 1-31 1-12 0-7", "0-59 0-23 1-31 1-12 0-6"),
        ("45,5,5,6,7 * * * *", "5-7,45 * * * *"),
        ("0-58/3,1-58/3 * * * *", "0-57/3,1-58/3 * * * *"),
        ("*/20,5 * * * *", "*/20,5 * * * *"),
        ("5,*/20 * * * *", "0,5,20,40 * * * *"),
        ("5,* * * * *", "0-59 * * * *"),
        ("007 03 01 09 00", "7 3 1 9 0"),
        ("0 0 * JAN,mar-May Mon", "0 0 * 1,3-5 1"),
        ("0 0 * * sun", "0 0 * * 0"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 0,7", "0 0 * * 0"),
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("0 0 * * fri-SUN", "0 0 * * 0,5,6"),
        ("0 0 * * 5-0", "0 0 * * 0,5,6"),
        ("0 0 * * sun-tue", "0 0 * * 0-2"),
        ("0 0 * * 7-2", "0 0 * * 0-2"),
        ("0 0 * * 7-7", "0 0 * * 0"),
        ("0 0 * * 1-7/2", "0 0 * * 0,1,3,5"),
        ("0 0 30 2 1", "0 0 30 2 1"),
        ("0 0 31 2,4,5 *", "0 0 31 2,4,5 *"),
        ("0 0 29 2 *", "0 0 29 2 *"),
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        (" @Midnight ", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("*" + String(repeating: " ", count: 192) + "* * * *", "* * * * *"),
    ]

    @Test(arguments: good)
    func `What crontab(5) knows is read, and has one canonical text`(text: String, canonical: String) throws {
        let expression = try CronExpression(text)
        #expect(expression.description == canonical)
        #expect(try CronExpression(canonical) == expression)
    }

    @Test func `Expressions are equal where they mean the same`() throws {
        #expect(try CronExpression("@daily") == CronExpression("0 0 * * *"))
        #expect(try CronExpression("0 0 * * fri-sun") == CronExpression("0 0 * * 5,6,0"))
        #expect(try CronExpression("0 * * * *") != CronExpression("0 0-23 * * *"), "clock changes tell them apart")
        #expect(try CronExpression("0 0 * * 1") != CronExpression("0 0 1-31 * 1"), "either day is enough in the latter")
    }

    private static let count = "; write minute, hour, day of month, month, day of week"
    private static let names = "@annually, @daily, @hourly, @midnight, @monthly, @weekly, @yearly"

    /// What may not be written, and what is answered.
    static let bad: [(String, String)] = [
        ("", "the expression is empty; write five fields such as 0 3 * * *, or a name such as @daily"),
        (" \t ", "the expression is empty; write five fields such as 0 3 * * *, or a name such as @daily"),
        ("5", "1 field instead of five" + count),
        ("0 3 * *", "4 fields instead of five" + count),
        ("0 0 3 * * *", "6 fields instead of five" + count),
        ("@reboot", "@reboot is not a name; write five fields, or one of " + names),
        ("@daily 3", "@daily 3 is not a name; write five fields, or one of " + names),
        ("0 @daily * * *", "hour: @daily is not a number in 0-23"),
        ("61 * * * *", "minute: 61 is not in 0-59"),
        ("60 * * * *", "minute: 60 is not in 0-59"),
        ("0 24 * * *", "hour: 24 is not in 0-23"),
        ("0 0 0 * *", "day of month: 0 is not in 1-31"),
        ("0 0 32 * *", "day of month: 32 is not in 1-31"),
        ("0 0 * 0 *", "month: 0 is not in 1-12"),
        ("0 0 * 13 *", "month: 13 is not in 1-12"),
        ("0 0 * * 8", "day of week: 8 is not in 0-7"),
        ("0-60 * * * *", "minute: 60 is not in 0-59"),
        ("99999999999999999999 * * * *", "minute: 99999999999999999999 is not in 0-59"),
        ("? * * * *", "minute: ? is not a number in 0-59"),
        ("+5 * * * *", "minute: +5 is not a number in 0-59"),
        ("-5 * * * *", "minute: an empty place is not a number in 0-59"),
        ("5- * * * *", "minute: an empty place is not a number in 0-59"),
        ("jan * * * *", "minute: jan is not a number in 0-59"),
        ("0 0 L * *", "day of month: l is not a number in 1-31"),
        ("0 0 * january *", "month: january is neither a number in 1-12 nor a name of three letters such as jan"),
        ("0 0 * * mo", "day of week: mo is neither a number in 0-7 nor a name of three letters such as sun"),
        ("0 0 * * 5#2", "day of week: 5#2 is neither a number in 0-7 nor a name of three letters such as sun"),
        ("1,,2 * * * *", "minute: 1,,2 has a comma without a value on each side; write a list such as 1,2"),
        ("1, * * * *", "minute: 1, has a comma without a value on each side; write a list such as 1,2"),
        ("1-2-3 * * * *", "minute: 1-2-3 is more than one range; write a range such as 1-5"),
        ("** * * * *", "minute: ** is not a number in 0-59"),
        ("*-5 * * * *", "minute: * is not a number in 0-59"),
        ("5/15 * * * *", "minute: 5/15 has a step without a range; write 5-59/15"),
        ("0 0 * * mon/2", "day of week: mon/2 has a step without a range; write mon-7/2"),
        ("*/0 * * * *", "minute: the step 0 is not in 1-59"),
        ("*/60 * * * *", "minute: the step 60 is not in 1-59"),
        ("0 */24 * * *", "hour: the step 24 is not in 1-23"),
        ("*/ * * * *", "minute: the step \"\" is not a number; write it as in */2"),
        ("*/x * * * *", "minute: the step \"x\" is not a number; write it as in */2"),
        ("*/5/5 * * * *", "minute: */5/5 has more than one step; write one, such as */5"),
        ("0 22-2 * * *", "hour: 22-2 runs backwards; write 22-23,0-2"),
        ("0 0 * nov-feb *", "month: nov-feb runs backwards; write 11-12,1-2"),
        ("0 0 * * fri-mon", "day of week: fri-mon runs backwards; write 5-6,0-1"),
        ("0 0 30 2 *", "day of month: 30 never comes in month 2; write a day that it has"),
        ("0 0 30,31 feb *", "day of month: 30,31 never comes in month 2; write a day that it has"),
        ("0 0 31 4,6,9,11 *", "day of month: 31 never comes in month 4,6,9,11; write a day that it has"),
        ("0 0 30 2 */2", "day of month: 30 never comes in month 2; write a day that it has"),
        ("0 0 * * *\n", "the character U+A is in no expression; write digits, names and * , - / alone"),
        ("0 0 ∗ * *", "the character U+2217 is in no expression; write digits, names and * , - / alone"),
        ("٣ 0 * * *", "the character U+663 is in no expression; write digits, names and * , - / alone"),
        (
            String(repeating: " ", count: 192) + "* * * * *",
            "the expression has more than 200 characters; write ranges and steps, not lists"
        ),
    ]

    @Test(arguments: bad)
    func `What is wrong is told with its field and what to write`(text: String, message: String) {
        #expect { try CronExpression(text) } throws: { error in "\(error)" == message }
    }

    @Test func `What a message tells to write is right`() throws {
        for text in ["5-59/15 * * * *", "0 22-23,0-2 * * *", "0 0 * 11-12,1-2 *", "0 0 * * 5-6,0-1", "0 0 * * mon-7/2"]
        {
            _ = try CronExpression(text)
        }
    }

    @Test func `A fault names its field`() {
        let fault = #expect(throws: CronExpression.Fault.self) { try CronExpression("0 0 * * 9") }
        #expect(fault?.field == .dayOfWeek)
        #expect(fault?.reason == "9 is not in 0-7")
        #expect(throws: CronExpression.Fault.self) { try CronExpression("@never") }
    }

    @Test func `Drawn expressions come back from their canonical text`() throws {
        var random = SeededRandom(seed: 5)
        for _ in 0..<2000 {
            let drawn = DrawnExpression(using: &random)
            guard let expression = try? CronExpression(drawn.text) else { continue }
            #expect(try CronExpression(expression.description) == expression, "\(drawn.text)")
            #expect(expression.description.split(separator: " ").count == 5, "\(drawn.text)")
        }
    }
}
